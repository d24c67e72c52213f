//go:build !unix

package main

import (
	"errors"
	"os"
)

const canStop = false

func stop(*os.Process) error { return errors.ErrUnsupported }
func cont(*os.Process) error { return errors.ErrUnsupported }
