// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

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
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/status"
)

// StatusMain runs `gpuagent status`, which draws the node's GPUs or prints them as JSON. open returns
// the driver for a node without an agent. StatusMain returns the exit status: 0, 1 if the GPUs cannot be
// observed, or 2 if the flags or the configuration are invalid.
func StatusMain(ctx context.Context, args []string, stdout, stderr io.Writer, open func(Driver) nvml.Library) int {
	klog.SetOutput(io.Discard) // Libraries log their attempts there.
	flags := flag.NewFlagSet("gpuagent status", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/sluice/gpuagent.yaml", "the agent's configuration `file`; without it the defaults hold")
	output := flags.String("output", "", "output format: json, or empty for a drawing")
	plain := flags.Bool("no-color", false, "disable colors on a terminal, as does the environment variable NO_COLOR")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "gpuagent status: unexpected arguments %q: want flags only\n", flags.Args())
		return 2
	case *output != "" && *output != "json":
		fmt.Fprintf(stderr, "gpuagent status: --output %q: want json, or nothing for a drawing\n", *output)
		return 2
	}
	cfg, err := loadConfig(*path)
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 2
	}
	node, err := readNode(ctx, cfg, stderr, open)
	if err == nil {
		err = writeNode(stdout, node, *output == "json", !*plain && colorEnabled(stdout))
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 1
	}
	return 0
}

// loadConfig reads the agent's configuration. Without a file it returns the defaults.
func loadConfig(path string) (*Config, error) {
	var cfg Config
	err := base.Load(path, &cfg)
	if errors.Is(err, fs.ErrNotExist) {
		cfg.Default()
		return &cfg, nil
	}
	return &cfg, err
}

// readNode returns the node as the agent reports it, or without an agent as the driver does.
func readNode(ctx context.Context, cfg *Config, stderr io.Writer, open func(Driver) nvml.Library) (status.Node, error) {
	node, fetchErr := FetchStatus(ctx, cfg.Socket())
	if fetchErr == nil {
		return node, nil
	}
	node, err := ObserveDirect(ctx, cfg, open(cfg.Driver))
	if err != nil {
		return node, errors.Join(fetchErr, err)
	}
	fmt.Fprintf(stderr, "gpuagent status: no agent answers (%v); showing the state of the driver\n", fetchErr)
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

// colorEnabled reports whether the output is a terminal that accepts colors; see no-color.org.
func colorEnabled(stdout io.Writer) bool {
	file, ok := stdout.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}
