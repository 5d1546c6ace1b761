//go:build !linux

package redistest

import "syscall"

// endWithTest is nothing here: a test that is killed leaves its server behind.
func endWithTest() *syscall.SysProcAttr { return nil }
