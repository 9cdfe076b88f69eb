// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	apiconfig "sluice.dev/api/config"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/up"
)

// contextFlags are the flags with which `sluice up` installs Sluice in another cluster.
type contextFlags struct {
	kubeconfig, context string
	yes, allowDowngrade bool
	up.Installation
}

// embeddedFlags are the flags of `sluice up` that are about the embedded cluster.
var embeddedFlags = []string{"dir", "detach", "scheduler", "nodes", "port", "time-scale", "pinned", "build-only"}

func addContextFlags(cmd *cobra.Command) *contextFlags {
	f := &contextFlags{Installation: up.Installation{Version: apiconfig.Version}}
	flags := cmd.Flags()
	flags.StringVar(&f.context, "context", "", "Install Sluice in the cluster of this `context` of the kubeconfig instead; the current context is never used")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "With --context: path of the kubeconfig `file` (default: KUBECONFIG, or ~/.kube/config)")
	flags.BoolVar(&f.yes, "yes", false, "With --context: do not ask before the installation")
	flags.StringVar(&f.Registry, "image-registry", "", "With --context: `registry` and folder of the images (required)")
	flags.StringVar(&f.Tag, "image-tag", apiconfig.Version, "With --context: `tag` of the images")
	flags.StringVar(&f.Overlay, "overlay", up.Overlays[0], "With --context: installation: "+strings.Join(up.Overlays, ", "))
	flags.BoolVar(&f.allowDowngrade, "allow-downgrade", false, "With --context: install a version that is older than the installed one")
	for _, name := range embeddedFlags {
		cmd.MarkFlagsMutuallyExclusive("context", name)
	}
	return f
}

// isSet reports whether Sluice is to be installed in another cluster. It fails for flags that are about that alone.
func (f *contextFlags) isSet(cmd *cobra.Command) (bool, error) {
	if cmd.Flags().Changed("context") {
		return true, nil
	}
	for _, name := range []string{"kubeconfig", "yes", "image-registry", "image-tag", "overlay", "allow-downgrade"} {
		if cmd.Flags().Changed(name) {
			return false, fmt.Errorf("--%s: needs --context, which names the cluster", name)
		}
	}
	return false, nil
}

// restConfig returns the configuration of the named context.
func (f *contextFlags) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if raw.Contexts[f.context] == nil {
		return nil, fmt.Errorf("--context: the kubeconfig has no context %q; it has %s", f.context,
			strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, f.context, nil, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read context %s: %w", f.context, err)
	}
	config.Timeout = requestTimeout
	config.UserAgent = "sluice/" + apiconfig.Version
	return config, nil
}

// install shows the cluster, asks, and installs Sluice in it.
func (f *contextFlags) install(cmd *cobra.Command) error {
	if f.Registry == "" {
		return errors.New("--image-registry: required with --context, since no images are published: build and push them (docs/platform/installation.md)")
	}
	config, err := f.restConfig()
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	version, err := server.ServerVersion()
	if err != nil {
		return fmt.Errorf("reach %s of context %s: %w", config.Host, f.context, err)
	}
	installed, err := up.FindInstalled(cmd.Context(), config)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	const indent = "\n            "
	fmt.Fprintf(out, "Context:    %s\nServer:     %s\nKubernetes: %s\nInstalled:  %s\nVersion:    %s\nOverlay:    %s\nImages:     %s\n",
		f.context, config.Host, printer.Sanitize(version.GitVersion), describeInstalled(installed, indent), f.Version, f.Overlay,
		strings.Join(f.Images(), indent))
	if err := f.CheckUpgrade(installed); err != nil {
		if !f.allowDowngrade {
			return err
		}
		f.KeepCRDs = true
		fmt.Fprintln(out, "CRDs:       those of the newer version stay, since older ones would drop fields of objects")
	}
	if !f.yes {
		if err := ask(out, bufio.NewScanner(cmd.InOrStdin()), "Type yes to install Sluice in this cluster", "yes"); err != nil {
			return err
		}
	}
	if err := up.Install(cmd.Context(), config, f.Installation, out); err != nil {
		return err
	}
	fmt.Fprintf(out, `Sluice is installed. Wait until it runs, and check it:
  kubectl %[1]s -n sluice-system rollout status deployment/webhook deployment/lifecycle
  sluice doctor %[1]s
`, f.clusterArguments())
	return nil
}

// clusterArguments returns the flags that select the cluster, as the user gave them, for a shell.
func (f *contextFlags) clusterArguments() string {
	arguments := "--context " + up.ShellQuote(f.context)
	if f.kubeconfig != "" {
		arguments = "--kubeconfig " + up.ShellQuote(f.kubeconfig) + " " + arguments
	}
	return arguments
}

// describeInstalled returns the installed versions, one a line.
func describeInstalled(installed []up.InstalledVersion, separator string) string {
	if len(installed) == 0 {
		return "nothing of Sluice"
	}
	lines := make([]string, 0, len(installed))
	for _, one := range installed {
		lines = append(lines, printer.Sanitize(one.String()))
	}
	return strings.Join(lines, separator)
}
