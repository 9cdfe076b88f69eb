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
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/cmd/sluice/printer"
)

const installHelp = `Install Sluice's manifests in a cluster, as ` + "`kubectl apply --server-side -k`" + ` does.

The command shows the cluster of the context and the installed version, and requests
confirmation. It never uses the current context. At a field that another program has set it fails, and changes
nothing. It can be repeated, and upgrades an installation.`

// installFlags select the cluster and the installation.
type installFlags struct {
	kubeconfig, context string
	yes, allowDowngrade bool
	installation.Installation
}

func newInstallCommand() *cobra.Command {
	f := &installFlags{Installation: installation.Installation{Version: apiconfig.Version}}
	cmd := &cobra.Command{
		Use:   "install --context CONTEXT --image-registry REGISTRY",
		Short: "Install or upgrade Sluice in a cluster",
		Long:  installHelp,
		Example: `  # Install Sluice in a cluster of your kubeconfig
  sluice install --context test --image-registry registry.example.org/sluice --image-tag v0.1.0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.install(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.context, "context", "", "`context` of the kubeconfig (required); the current context is never used")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "Path of the kubeconfig `file` (default: KUBECONFIG, or ~/.kube/config)")
	flags.BoolVar(&f.yes, "yes", false, "Do not ask before the installation")
	flags.StringVar(&f.Registry, "image-registry", "", "`registry` and folder of the images (required)")
	flags.StringVar(&f.Tag, "image-tag", apiconfig.Version, "`tag` of the images")
	flags.StringVar(&f.Overlay, "overlay", installation.Overlays[0], "Installation: "+strings.Join(installation.Overlays, ", "))
	flags.IntVar(&f.Replicas.Webhook, "webhook-replicas", 0, "Number of pods of the webhook (default: that of the overlay)")
	flags.IntVar(&f.Replicas.Lifecycle, "lifecycle-replicas", 0,
		"Number of pods of lifecycle, of which one is active (default: that of the overlay)")
	flags.BoolVar(&f.allowDowngrade, "allow-downgrade", false, "Install a version that is older than the installed one")
	_ = cmd.MarkFlagRequired("context") // the flag exists
	return cmd
}

// restConfig returns the configuration of the named context.
func (f *installFlags) restConfig() (*rest.Config, error) {
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
	config.Timeout, config.QPS = requestTimeout, -1 // the objects are checked and applied one after another
	config.UserAgent = "sluice/" + apiconfig.Version
	return config, nil
}

// install shows the cluster, asks, and installs Sluice in it.
func (f *installFlags) install(cmd *cobra.Command) error {
	if f.Registry == "" {
		return errors.New("--image-registry: required, since no images are published: build and push them (docs/platform/installation.md)")
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
	installed, err := installation.FindInstalled(cmd.Context(), config)
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
	if err := installation.Install(cmd.Context(), config, f.Installation, out); err != nil {
		return err
	}
	fmt.Fprintf(out, `Sluice is installed. Wait until it runs, and check it:
  kubectl %[1]s -n sluice-system rollout status deployment/webhook deployment/lifecycle
  sluice doctor %[1]s
`, f.clusterArguments())
	return nil
}

// clusterArguments returns the flags that select the cluster, as the user gave them, for a shell.
func (f *installFlags) clusterArguments() string {
	arguments := "--context " + printer.ShellQuote(f.context)
	if f.kubeconfig != "" {
		arguments = "--kubeconfig " + printer.ShellQuote(f.kubeconfig) + " " + arguments
	}
	return arguments
}

// describeInstalled returns the installed versions, one a line.
func describeInstalled(installed []installation.InstalledVersion, separator string) string {
	if len(installed) == 0 {
		return "nothing of Sluice"
	}
	lines := make([]string, 0, len(installed))
	for _, one := range installed {
		lines = append(lines, printer.Sanitize(one.String()))
	}
	return strings.Join(lines, separator)
}
