// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
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
	"sluice.dev/api/clock"
	"sluice.dev/api/scheme"
)

// answerWithin is how long one request may take.
const answerWithin = 30 * time.Second

// Options say which cluster is meant, as the command line has them.
type Options struct {
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

// Cluster is a cluster to talk to.
type Cluster struct {
	client.Client
	// Config is how it is reached.
	Config *rest.Config
	// Namespace is the one that is meant where none is named.
	Namespace string
	// Clock tells policy time there.
	Clock clock.Clock
}

// Open finds the cluster. It fails where none is configured, where a kubeconfig
// is damaged, and where Dir is no embedded cluster's.
func Open(options Options) (*Cluster, error) {
	loader, err := options.loader()
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
	config.Timeout = answerWithin
	config.UserAgent = "sluice/" + api.Version
	config.WarningHandler = rest.NoWarnings{}
	if options.Warnings != nil {
		config.WarningHandler = rest.NewWarningWriter(options.Warnings, rest.WarningWriterOptions{Deduplicate: true})
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	policyTime, err := options.clock(loader)
	if err != nil {
		return nil, err
	}
	kinds, err := scheme.New()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &Cluster{Client: c, Config: config, Namespace: namespace, Clock: policyTime}, nil
}

// loader reads kubeconfigs as kubectl does.
func (o Options) loader() (clientcmd.ClientConfig, error) {
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
func (c *Cluster) RESTMapper() meta.RESTMapper {
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return c.Client.RESTMapper() // without short names
	}
	cached := memory.NewMemCacheClient(found)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
}
