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

// exitModeVariable makes TestNothingIsLeft go wrong in the way that it names.
const exitModeVariable = "SLUICE_TEST_END"

// However a test binary ends, its cluster is gone. The binary that goes wrong is
// this one, run once more.
func TestClusterRemovedAfterExit(t *testing.T) {
	if how := os.Getenv(exitModeVariable); how != "" {
		exitAbnormally(t, how)
	}
	for _, how := range []string{"panic", "exit", "fail", "interrupt"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			binary := exec.Command(os.Args[0], "-test.run=^TestClusterRemovedAfterExit$")
			binary.Env = append(os.Environ(), exitModeVariable+"="+how)
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
					if how == "interrupt" {
						if err := binary.Process.Signal(os.Interrupt); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if err := binary.Wait(); err == nil {
				t.Error("the test binary reports success")
			}
			if dir == "" {
				t.Fatal("it never had a cluster")
			}
			Eventually(t, func() error {
				if _, err := os.Stat(dir); !os.IsNotExist(err) {
					return fmt.Errorf("%s is left", dir)
				}
				if left := processesIn(t, dir); len(left) != 0 {
					return fmt.Errorf("processes are left: %v", left)
				}
				return nil
			})
		})
	}
}

func exitAbnormally(t *testing.T, how string) {
	c := Start(t)
	fmt.Println("cluster in " + c.Dir())
	switch how {
	case "panic":
		panic("a test's mistake")
	case "exit":
		os.Exit(3)
	case "fail":
		t.Fatal("a test's complaint")
	default: // until interrupted
		select {}
	}
}

// processesIn returns the command lines that name the folder.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(dir)) { // else it has ended
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
