// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command build builds Sluice, the lab and the programs of the embedded Kubernetes, and shows the progress. Run it in the
// folder of the lab's module. It links only a few packages, so that it starts within seconds on a new machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sluice.dev/test/lab/cluster/build"
)

func main() {
	bin := flag.String("bin", "../../bin", "`folder` of the programs of Sluice and of the lab")
	ldflags := flag.String("ldflags", "", "flags of the linker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := build.TreeAndPrograms(ctx, os.Stderr, build.Tree{
		Dir: "../..", Workspace: "../../.ci/workspace/go.work",
		Packages: []string{
			"./cmd/sluice", "./cmd/webhook", "./cmd/lifecycle", "./test/lab/cmd/sluice-lab", "./test/lab/cmd/sluice-lab-gpuagent",
		},
	}, *bin, "-trimpath", "-buildvcs=false", "-ldflags", *ldflags)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
