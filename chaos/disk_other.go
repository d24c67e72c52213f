//go:build !linux

package main

import "errors"

// mountDisk mounts a small disk at dir, which only root may.
func mountDisk(string, int) error { return errors.ErrUnsupported }

func unmountDisk(string) error { return nil }
