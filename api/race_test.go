//go:build race

package api

const raced = true // stacks and heap are larger under the race detector
