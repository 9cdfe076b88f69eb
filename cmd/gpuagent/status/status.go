// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status is the command `gpuagent status`, which shows a node's GPUs.
//
// Enters: flags. Leaves: a picture on the terminal, or JSON, from the agent that runs
// on the node, or where none does from the driver itself.
//
// It never changes anything, and writes colors to terminals only.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	base "sluice.dev/api/config"
	"sluice.dev/cmd/gpuagent/library"
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/status"
)

// Main is the command's main function; what it returns is the exit status: 0, or 1
// where the GPUs cannot be told, or 2 where the flags or the configuration are wrong.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	klog.SetOutput(io.Discard) // what libraries say of their attempts
	flags := flag.NewFlagSet("gpuagent status", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/sluice/gpuagent.yaml", "the agent's configuration `file`; where it is missing the defaults hold")
	output := flags.String("output", "", "json for a machine")
	plain := flags.Bool("no-color", false, "no colors, on a terminal too; so does the variable NO_COLOR")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "gpuagent status: %q: no arguments are expected, only flags\n", flags.Args())
		return 2
	case *output != "" && *output != "json":
		fmt.Fprintf(stderr, "gpuagent status: --output %q: want json, or nothing for a picture\n", *output)
		return 2
	}
	cfg, err := loadConfig(*path)
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 2
	}
	node, err := readNode(ctx, cfg, stderr)
	if err == nil {
		err = writeNode(stdout, node, *output == "json", !*plain && colorEnabled(stdout))
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 1
	}
	return 0
}

// loadConfig is the agent's configuration; a file that is not there stands for the defaults.
func loadConfig(path string) (*agent.Config, error) {
	var cfg agent.Config
	err := base.Load(path, &cfg)
	if errors.Is(err, fs.ErrNotExist) {
		cfg.Default()
		return &cfg, nil
	}
	return &cfg, err
}

// readNode asks the agent, and where none answers the driver.
func readNode(ctx context.Context, cfg *agent.Config, stderr io.Writer) (status.Node, error) {
	node, asked := agent.FetchStatus(ctx, cfg.Socket())
	if asked == nil {
		return node, nil
	}
	node, err := agent.ObserveDirect(ctx, cfg, library.New(cfg.Driver))
	if err != nil {
		return node, errors.Join(asked, err)
	}
	fmt.Fprintf(stderr, "gpuagent status: no agent answers (%v); this is what the driver itself says\n", asked)
	return node, nil
}

func writeNode(stdout io.Writer, node status.Node, asJSON, colors bool) error {
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(node)
	}
	_, err := io.WriteString(stdout, status.Render(node, colors))
	return err
}

// colorEnabled tells whether colors are for this output; see no-color.org.
func colorEnabled(stdout io.Writer) bool {
	file, ok := stdout.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}
