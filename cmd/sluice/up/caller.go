// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"strings"
)

// caller is the person at the shell. What they may copy from the screen has to
// work where they stand and by the name under which they found the program.
type caller struct {
	// program is how the program was called.
	program string
	// dir is the working directory; empty where that is not known.
	dir string
}

func theCaller() caller {
	who := caller{program: programOf(os.Args[0])}
	// Without it paths are absolute. A cluster's own have no links.
	if dir, err := os.Getwd(); err == nil {
		who.dir = followed(dir)
	}
	return who
}

// programOf is what to type to call the program that was called as arg0.
func programOf(arg0 string) string {
	if filepath.Base(arg0) == "kubectl-sluice" {
		return "kubectl sluice"
	}
	return quoted(arg0)
}

// path is a path as the caller may write it, short where it lies below them.
func (c caller) path(path string) string { return quoted(c.relative(path)) }

// lasting is a path that stays right when the caller goes elsewhere; only the
// shell's own variable for the working directory keeps it short.
func (c caller) lasting(path string) string {
	short := c.relative(path)
	if filepath.IsAbs(short) {
		return quoted(short)
	}
	return `"$PWD"/` + quoted(short)
}

func (c caller) relative(path string) string {
	short, err := filepath.Rel(c.dir, followed(path))
	if err != nil || !filepath.IsLocal(short) {
		return path
	}
	return short
}

// quoted is text as one word of a shell's command line.
func quoted(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
