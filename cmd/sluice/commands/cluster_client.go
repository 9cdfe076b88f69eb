// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/up"
)

// requestTimeout is how long one request may take.
const requestTimeout = 30 * time.Second

// ClusterOptions say which cluster is meant, as the command line has them.
type ClusterOptions struct {
	// Dir is the folder of an embedded cluster; empty where none was named.
	Dir string
	// Kubeconfig is the path of a kubeconfig. The default is Dir's, else what
	// KUBECONFIG names, else ~/.kube/config.
	Kubeconfig string
	// Context is a context in it; empty for the current one.
	Context string
	// Namespace is the namespace that is meant; empty for the context's.
	Namespace string
	// Warnings is where what the API server warns of is written; nil for nowhere.
	Warnings io.Writer
}

// ClusterClient is a cluster to talk to.
type ClusterClient struct {
	client.Client
	// Config is how it is reached.
	Config *rest.Config
	// Namespace is the one that is meant where none is named.
	Namespace string
	// Clock tells policy time there.
	Clock policytime.Clock
}

// NewClusterClient finds the cluster. It fails where none is configured, where a kubeconfig
// is damaged, and where Dir is no embedded cluster's.
func NewClusterClient(options ClusterOptions) (*ClusterClient, error) {
	loader, err := options.clientConfig()
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("no cluster to talk to: name a kubeconfig with --kubeconfig or in KUBECONFIG, or an embedded cluster's folder with --dir: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.Timeout = requestTimeout
	config.UserAgent = "sluice/" + api.Version
	config.WarningHandler = rest.NoWarnings{}
	if options.Warnings != nil {
		config.WarningHandler = rest.NewWarningWriter(options.Warnings, rest.WarningWriterOptions{Deduplicate: true})
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	policyTime, err := options.policyClock(loader)
	if err != nil {
		return nil, err
	}
	kinds, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &ClusterClient{Client: c, Config: config, Namespace: namespace, Clock: policyTime}, nil
}

// clientConfig reads kubeconfigs as kubectl does.
func (o ClusterOptions) clientConfig() (clientcmd.ClientConfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	if rules.ExplicitPath == "" && o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("--dir %s: %w", o.Dir, err)
		}
		rules.ExplicitPath = filepath.Join(dir, "kubeconfig")
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	overrides.Context.Namespace = o.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

// RESTMapper knows the cluster's kinds by all the names that kubectl knows them
// by. It asks the cluster for them when it is used.
func (c *ClusterClient) RESTMapper() meta.RESTMapper {
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return c.Client.RESTMapper() // without short names
	}
	cached := memory.NewMemCacheClient(found)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
}

// policyClock is the policy time of the cluster that is meant: that of the folder that
// was named; else of the folder in which the kubeconfig in use lies, where that
// is an embedded cluster's; else real time.
func (o ClusterOptions) policyClock(loader clientcmd.ClientConfig) (policytime.Clock, error) {
	if o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("--dir %s: %w", o.Dir, err)
		}
		return up.OpenClock(dir)
	}
	dir, err := o.embeddedDir(loader)
	if err != nil || dir == "" {
		return policytime.System(), err
	}
	file, err := up.OpenClock(dir)
	if errors.Is(err, up.ErrNoCluster) {
		return policytime.System(), nil
	}
	return file, err
}

// embeddedDir is where the file lies from which the cluster in use was read; empty
// where that is no file. KUBECONFIG may name several.
func (o ClusterOptions) embeddedDir(loader clientcmd.ClientConfig) (string, error) {
	raw, err := loader.RawConfig()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	context := raw.Contexts[cmp.Or(o.Context, raw.CurrentContext)]
	if context == nil {
		return "", nil
	}
	server := raw.Clusters[context.Cluster]
	if server == nil || server.LocationOfOrigin == "" {
		return "", nil
	}
	return filepath.Abs(filepath.Dir(server.LocationOfOrigin))
}
