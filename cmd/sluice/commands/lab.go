// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// labProgram runs the embedded cluster. It is a program of its own, so that an administrator installs no simulation.
const labProgram = "sluice-lab"

// newLabCommands returns the commands for an embedded cluster, which sluice-lab has.
func newLabCommands() []*cobra.Command {
	var list []*cobra.Command
	for _, lab := range []struct{ name, short, example string }{
		{"up", "Run a Kubernetes cluster with Sluice on this machine", "# Run a cluster in the background\n  sluice up --detach"},
		{"down", "Stop and remove a cluster that `sluice up` runs", "# Stop and remove the cluster in .sluice\n  sluice down"},
		{"status", "Show the components of an embedded cluster", "# Show the cluster of the current kubeconfig\n  sluice status"},
		{
			"time", "Show or advance the policy time of an embedded cluster",
			"# Advance policy time by a day and a half\n  sluice time advance 1d12h",
		},
		{"mail", "Show the mail that an embedded cluster sent", "# List all mails\n  sluice mail list"},
	} {
		list = append(list, &cobra.Command{
			Use: lab.name, Short: lab.short, Example: "  " + lab.example,
			Long:               lab.short + ".\n\nThe program sluice-lab, which runs the cluster, has this command and its help.",
			DisableFlagParsing: true, // sluice-lab parses the flags, --help included
			RunE:               func(_ *cobra.Command, args []string) error { return execLab(append([]string{lab.name}, args...)) },
		})
	}
	return list
}

// execLab replaces this process by sluice-lab, which keeps the name by which the user called this one: it prints commands to try.
func execLab(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil { // kubectl-sluice is a link
		return err
	}
	lab := filepath.Join(filepath.Dir(self), labProgram)
	if _, err := os.Stat(lab); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the embedded cluster needs the program %s, which is not in %s: clone Sluice's sources, run `make build`, "+
			"and use bin/sluice", labProgram, filepath.Dir(self))
	}
	if !sameOwner(self, lab) {
		return fmt.Errorf("%s is not run: another user owns it than %s", lab, self)
	}
	return fmt.Errorf("run %s: %w", lab, syscall.Exec(lab, append([]string{os.Args[0]}, args...), os.Environ()))
}

// sameOwner reports whether one user owns both files. In a folder such as /tmp, others may add files.
func sameOwner(a, b string) bool {
	var first, second syscall.Stat_t
	return syscall.Stat(a, &first) == nil && syscall.Stat(b, &second) == nil && first.Uid == second.Uid
}
