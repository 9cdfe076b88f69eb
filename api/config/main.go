// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	_ "time/tzdata" // departments have time zones, and an image may have no database of them

	"github.com/go-logr/logr"

	"sluice.dev/api"
)

// Main is the main function of a binary that runs until ctx ends: it reads the
// flags in args, fills cfg from the file they name, and calls run. What it
// returns is the exit status: 0 when run ended without an error, 1 when it did
// not, 2 when the flags or the configuration are wrong.
func Main(ctx context.Context, name string, args []string, stderr io.Writer, cfg File, run func(context.Context, logr.Logger) error) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/sluice/"+name+".yaml", "path of the configuration `file`, of kind "+cfg.Kind())
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: %q: no arguments are expected, only flags\n", name, flags.Args())
		return 2
	case *version:
		fmt.Fprintln(stderr, api.Version)
		return 0
	}
	if err := Load(*path, cfg); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 2
	}
	if err := run(ctx, cfg.StartLogging(stderr)); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
