// Package npm installs the npm packages that tests run, from a lock file beside
// them. Only tests import it.
package npm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Install runs npm ci in a folder with a package-lock.json, once, whatever number
// of test processes want it, and not at all when that is done. Nothing of the
// packages is run.
func Install(dir string) error {
	// npm writes this file last, so it tells a whole installation from one that
	// was interrupted.
	done := filepath.Join(dir, "node_modules", ".package-lock.json")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	command := fmt.Sprintf("npm ci --ignore-scripts --prefix %s", dir)
	lock, err := os.Open(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("wait for another installation: %w", err)
	}
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is needed and not installed; on Debian: apt-get install nodejs npm; then run: %s", command)
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s\nrun by hand: %s", err, out, command)
	}
	return nil
}

// Node is the path of the node program.
func Node() (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node 20 or newer is needed and not installed; on Debian: apt-get install nodejs npm")
	}
	return node, nil
}
