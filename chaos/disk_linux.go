package main

import (
	"fmt"
	"syscall"
)

// mountDisk mounts a small disk at dir, which only root may.
func mountDisk(dir string, megabytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%dm,mode=0755", megabytes))
}

func unmountDisk(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
