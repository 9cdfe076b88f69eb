// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// Already reports whether a cluster runs in options.Dir. One that options, with
// Detach, are content with is shown on options.Output; any other is an error,
// which says how to stop it, and so are options that no cluster could have.
func Already(options Options) (bool, error) {
	options, err := options.validated()
	if err != nil {
		return false, err
	}
	report, err := Status(options.Dir)
	switch {
	case errors.Is(err, ErrNotRunning):
		return false, nil
	case err != nil:
		return false, err
	}
	who := theCaller()
	if against, instead := options.against(report); against != "" {
		return true, fmt.Errorf("it runs already, %s: %s; %s`%s %s --dir %s`",
			report.size(), against, instead.words, who.program, instead.command, who.path(report.Dir))
	}
	fmt.Fprint(options.Output, "it runs already\n\n")
	return true, Show(options.Output, report)
}

// instead is what to do when the options are against a cluster that runs.
type instead struct{ words, command string }

// against says what the options want and a cluster that runs does not have, and
// what to do instead; empty where they are content with it.
func (o Options) against(report Report) (string, instead) {
	stop := instead{"stop it first, with ", "down --keep"}
	switch {
	case !o.AnyNodes && o.Nodes != len(report.Nodes):
		return fmt.Sprintf("--nodes %d does not change it", o.Nodes), stop
	case o.Port != 0 && strconv.Itoa(o.Port) != report.port():
		return fmt.Sprintf("--port %d does not change it", o.Port), stop
	case o.TimeScale != 0 && !report.runsAt(o.TimeScale):
		scale := formatScale(o.TimeScale)
		return fmt.Sprintf("--time-scale %s does not change it", scale), instead{"but this does: ", "clock scale " + scale}
	case !o.Detach:
		return fmt.Sprintf("process %d watches over it", report.PID), stop
	default:
		return "", instead{}
	}
}

// size says in a few words which cluster this is.
func (r Report) size() string {
	nodes := "1 node"
	if n := len(r.Nodes); n != 1 {
		nodes = fmt.Sprintf("%d nodes", n)
	}
	return "with " + nodes + " on port " + r.port()
}

// port is the API server's.
func (r Report) port() string {
	server, err := url.Parse(r.Server)
	if err != nil {
		return "" // not written by a run: no port is equal to it
	}
	return server.Port()
}
