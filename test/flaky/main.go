// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// The program flaky reports the tests that failed only at first, from the record that gotestsum wrote:
//
//	flaky bin/test.json
//
// It fails if a package ended before all of its tests had run.
package main

import (
	"fmt"
	"io"
	"os"

	"sluice.dev/test/flaky/record"
)

func main() {
	if err := report(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(1)
	}
}

func report(out io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: name the file that gotestsum --jsonfile wrote", len(args))
	}
	file, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	r, err := record.Read(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	if _, err := io.WriteString(out, r.String()); err != nil {
		return err
	}
	return r.Err()
}
