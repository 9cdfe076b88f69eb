// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command programs builds the programs of the embedded Kubernetes and prints their paths.
// Later test runs find them in the cache and do not spend their time limits on the first
// build. Arguments are the names of additional programs:
//
//	go run ./test/cluster/build/programs kueue
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
	names := append(build.Names(), os.Args[1:]...)
	paths, err := build.Programs(ctx, os.Stderr, names...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range names {
		fmt.Fprintln(os.Stdout, paths[name])
	}
}
