// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	apiconfig "sluice.dev/api/config"
	"sluice.dev/api/policytime"
)

// requestTimeout limits each request to the API server, unless --request-timeout does.
const requestTimeout = 30 * time.Second

// The most requests to the API server. It has its own limits for each user; these keep one command from
// many waiting ones.
const (
	requestsPerSecond = 50
	requestBurst      = 300
)

// scope says which namespaces a command works in.
type scope int

const (
	clusterScope   scope = iota // no namespace
	namespaceScope              // -n
	listScope                   // -n or -A
)

// clusterFlags are all flags of kubectl that select a cluster, a namespace and a user, and --dir for an
// embedded cluster.
type clusterFlags struct {
	*genericclioptions.ConfigFlags
	dir           string
	allNamespaces bool
}

func addClusterFlags(cmd *cobra.Command, s scope) *clusterFlags {
	f := &clusterFlags{ConfigFlags: genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(requestsPerSecond).WithDiscoveryBurst(requestBurst)}
	if s == clusterScope {
		f.Namespace = nil
	}
	addConnectionFlags(cmd, f)
	cmd.Flags().StringVar(&f.dir, "dir", "", "Folder of an embedded cluster (default: the folder of the kubeconfig, if it has one)")
	if s == listScope {
		cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "List the objects of all namespaces")
		cmd.MarkFlagsMutuallyExclusive("all-namespaces", "namespace")
	}
	return f
}

// complete sets the kubeconfig of an embedded cluster's folder.
func (f *clusterFlags) complete() error {
	if f.dir == "" {
		return nil
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return fmt.Errorf("--dir %s: %w", f.dir, err)
	}
	f.dir = dir
	if *f.KubeConfig == "" {
		*f.KubeConfig = filepath.Join(dir, "kubeconfig")
	}
	return nil
}

// errNotEmbedded is the error for a cluster that `sluice up` does not run.
var errNotEmbedded = errors.New("no embedded cluster")

// isEmbedded reports whether a folder has the mark of an embedded cluster, which sluice-lab writes.
func isEmbedded(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	var mark metav1.TypeMeta
	return err == nil && json.Unmarshal(raw, &mark) == nil && mark.Kind == "EmbeddedCluster"
}

// embeddedDir returns the folder of the embedded cluster, which has its policy time. It fails with
// errNotEmbedded for any other cluster.
func (f *clusterFlags) embeddedDir() (string, error) {
	if err := f.complete(); err != nil {
		return "", err
	}
	if f.dir != "" {
		if !isEmbedded(f.dir) {
			return "", fmt.Errorf("--dir %s: %w there; `sluice up --dir DIR` starts one", f.dir, errNotEmbedded)
		}
		return f.dir, nil
	}
	dir, err := f.kubeconfigDir()
	if err != nil {
		return "", err
	}
	if dir == "" || !isEmbedded(dir) {
		return "", fmt.Errorf("%w: the kubeconfig is not one of `sluice up`; "+
			"name the cluster's folder with --dir, or set KUBECONFIG", errNotEmbedded)
	}
	return dir, nil
}

// kubeconfigDir returns the folder of the file that defines the current cluster.
// It is empty if no file does. KUBECONFIG may name several files.
func (f *clusterFlags) kubeconfigDir() (string, error) {
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	current := raw.Contexts[cmp.Or(*f.Context, raw.CurrentContext)]
	if current == nil {
		return "", nil
	}
	server := raw.Clusters[cmp.Or(*f.ClusterName, current.Cluster)]
	if server == nil || server.LocationOfOrigin == "" || *f.APIServer != "" && *f.APIServer != server.Server {
		return "", nil // or --server names another one
	}
	return filepath.Abs(filepath.Dir(server.LocationOfOrigin))
}

// clusterClient reads and writes the objects of one cluster.
type clusterClient struct {
	client.Client
	flags  *clusterFlags
	config *rest.Config
	// namespace is the selected namespace; empty for all namespaces.
	namespace string
	// clock is the cluster's policy time.
	clock policytime.Clock
}

// connect returns a client for the selected cluster. It sends no request. Warnings
// of the API server go to the command's standard error.
func (f *clusterFlags) connect(cmd *cobra.Command) (*clusterClient, error) {
	config, namespace, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	if !cmd.Flags().Changed("request-timeout") {
		config.Timeout = requestTimeout
	}
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	config.UserAgent = "sluice/" + apiconfig.Version
	config.WarningHandler = rest.NewWarningWriter(plainWarnings{cmd.ErrOrStderr()}, rest.WarningWriterOptions{Deduplicate: true})
	clock, err := f.policyClock()
	if err != nil {
		return nil, err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &clusterClient{Client: c, flags: f, config: config, namespace: namespace, clock: clock}, nil
}

// plainWarnings writes warnings of the API server without the path of the template: the user knows what was submitted.
type plainWarnings struct{ io.Writer }

// Write implements io.Writer.
func (w plainWarnings) Write(line []byte) (int, error) {
	plain := bytes.Replace(line, []byte("spec.template: "), nil, 1)
	if _, err := w.Writer.Write(plain); err != nil {
		return 0, err
	}
	return len(line), nil
}

func (f *clusterFlags) restConfig() (*rest.Config, string, error) {
	if err := f.complete(); err != nil {
		return nil, "", err
	}
	loader := f.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, err := rest.InClusterConfig(); err != nil && clientcmdapi.IsConfigEmpty(&raw) && *f.APIServer == "" {
		return nil, "", errors.New("no cluster selected: name a kubeconfig with --kubeconfig or in KUBECONFIG, " +
			"an embedded cluster's folder with --dir, or a server with --server")
	}
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	if f.allNamespaces {
		return config, "", nil
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// policyClock returns the policy time of an embedded cluster, and real time for
// any other.
func (f *clusterFlags) policyClock() (policytime.Clock, error) {
	dir, err := f.embeddedDir()
	if errors.Is(err, errNotEmbedded) && f.dir == "" {
		return policytime.System(), nil
	}
	if err != nil {
		return nil, err
	}
	return policytime.OpenFile(filepath.Join(dir, policytime.FileName), nil)
}

// RESTMapper resolves kinds by all names that kubectl accepts, short names
// included.
func (c *clusterClient) RESTMapper() meta.RESTMapper {
	mapper, err := c.flags.ToRESTMapper()
	if err != nil {
		return c.Client.RESTMapper()
	}
	return mapper
}

// pageSize is the number of objects in one list request.
const pageSize = 500

// listPages lists objects in pages and calls visit with each page.
func listPages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Reader, visit func(L), options ...client.ListOption) error {
	for next := ""; ; {
		page := L(new(T)) // decoding into an earlier page would change its objects
		if err := c.List(ctx, page, append(options, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// explainForbidden appends a hint to an error if the API server denied the request.
func explainForbidden(err error, hint string) error {
	if apierrors.IsForbidden(err) && hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}
