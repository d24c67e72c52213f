//go:build race

package server_test

const raced = true // stacks and heap are larger under the race detector
