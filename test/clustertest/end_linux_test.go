// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exitModeVariable selects how TestClusterRemovedAfterExit's child process ends.
const exitModeVariable = "SLUICE_TEST_END"

// The cluster is removed after any end of the test binary. The test runs its own binary
// again, which then ends abnormally.
func TestClusterRemovedAfterExit(t *testing.T) {
	if mode := os.Getenv(exitModeVariable); mode != "" {
		exitAbnormally(t, mode)
	}
	for _, mode := range []string{"panic", "exit", "fail", "interrupt"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			binary := exec.Command(os.Args[0], "-test.run=^TestClusterRemovedAfterExit$")
			binary.Env = append(os.Environ(), exitModeVariable+"="+mode)
			out, err := binary.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := binary.Start(); err != nil {
				t.Fatal(err)
			}
			defer binary.Process.Kill()
			var dir string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if name, ok := strings.CutPrefix(lines.Text(), "cluster in "); ok {
					dir = name
					if mode == "interrupt" {
						if err := binary.Process.Signal(os.Interrupt); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if err := binary.Wait(); err == nil {
				t.Error("the test binary succeeded")
			}
			if dir == "" {
				t.Fatal("the test binary printed no cluster")
			}
			Eventually(t, func() error {
				if _, err := os.Stat(dir); !os.IsNotExist(err) {
					return fmt.Errorf("%s remains", dir)
				}
				if left := processesIn(t, dir); len(left) != 0 {
					return fmt.Errorf("remaining processes: %v", left)
				}
				return nil
			})
		})
	}
}

func exitAbnormally(t *testing.T, mode string) {
	c := Start(t)
	fmt.Println("cluster in " + c.Dir())
	switch mode {
	case "panic":
		panic("panic in a test")
	case "exit":
		os.Exit(3)
	case "fail":
		t.Fatal("failure of a test")
	default: // until interrupted
		select {}
	}
}

// processesIn returns the command lines that contain the folder.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(dir)) { // otherwise it has ended
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
