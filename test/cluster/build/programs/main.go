// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command programs builds the programs of the embedded Kubernetes ahead of time
// and prints their paths. Test runs find them in the cache then, and do not
// spend their time limits on the first build:
//
//	go run ./test/cluster/build/programs
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"sluice.dev/test/cluster/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	paths, err := build.Programs(ctx, os.Stderr, build.Names()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range build.Names() {
		fmt.Fprintln(os.Stdout, paths[name])
	}
}
