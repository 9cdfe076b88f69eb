// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"sluice.dev/gpuagent"
	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/picture"
)

// Main is the command's main function; what it returns is the exit status: 0, or 1
// where the GPUs cannot be told, or 2 where the flags or the configuration are wrong.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	klog.SetOutput(io.Discard) // what libraries say of their attempts
	flags := flag.NewFlagSet("gpuagent status", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/sluice/gpuagent.yaml", "the agent's configuration `file`; where it is missing the defaults hold")
	output := flags.String("output", "", "json for a machine")
	plain := flags.Bool("no-colour", false, "no colours, on a terminal too; so does the variable NO_COLOR")
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
	cfg, err := load(*path)
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 2
	}
	node, err := see(ctx, cfg, stderr)
	if err == nil {
		err = write(stdout, node, *output == "json", !*plain && colourful(stdout))
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpuagent status: %v\n", err)
		return 1
	}
	return 0
}

// load is the agent's configuration; a file that is not there stands for the defaults.
func load(path string) (*config.Config, error) {
	var cfg config.Config
	err := base.Load(path, &cfg)
	if errors.Is(err, fs.ErrNotExist) {
		cfg.Default()
		return &cfg, nil
	}
	return &cfg, err
}

// see asks the agent, and where none answers the driver.
func see(ctx context.Context, cfg *config.Config, stderr io.Writer) (picture.Node, error) {
	node, asked := gpuagent.Ask(ctx, cfg.Socket())
	if asked == nil {
		return node, nil
	}
	node, err := gpuagent.Look(ctx, cfg, library.Choose(cfg.Driver))
	if err != nil {
		return node, errors.Join(asked, err)
	}
	fmt.Fprintf(stderr, "gpuagent status: no agent answers (%v); this is what the driver itself says\n", asked)
	return node, nil
}

func write(stdout io.Writer, node picture.Node, asJSON, colours bool) error {
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(node)
	}
	_, err := io.WriteString(stdout, picture.Draw(node, colours))
	return err
}

// colourful tells whether colours are for this output; see no-color.org.
func colourful(stdout io.Writer) bool {
	file, ok := stdout.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}
