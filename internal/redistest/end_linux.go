package redistest

import "syscall"

// endWithTest ends the server when the test's process dies, however it dies.
func endWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
