// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/test/cluster/fakekubelet/procfs"
)

// Run plays the kubelets of all nodes in cfg until ctx ends, and then returns nil.
// It waits for an API server that is away. It returns an error at once where cfg
// is wrong, a node is played by another process, a checkpoint cannot be believed
// or a socket cannot be opened; later where a node's Node is refused. Whenever it
// ends, it may be started again with the same Dir: pods keep their devices. While it
// runs SIGHUP makes the device plugins look again.
func Run(ctx context.Context, cfg Config) error {
	kubelets, err := newKubelets(cfg)
	if err != nil {
		return fmt.Errorf("fake kubelet: %w", err)
	}
	// From here on SIGHUP is for the device plugin, and no end of this process.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangUps:
				for _, k := range kubelets {
					k.hangUp()
				}
			}
		}
	})
	for _, k := range kubelets {
		group.Go(func() error {
			if err := k.run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("fake kubelet of node %s: %w", k.node.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func newKubelets(cfg Config) ([]*kubelet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.API == nil {
		return nil, errors.New("Config.API is nil: say how the API server is reached")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("dir %q: %w", cfg.Dir, err)
	}
	api := rest.CopyConfig(cfg.API)
	// One process is many kubelets: a client's limit would make them wait for
	// each other. The server has its own.
	api.QPS = -1
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("Config.API: %w", err)
	}
	var kubelets []*kubelet
	for i, node := range cfg.Nodes {
		socket, err := socketPath(dir, node.Name)
		if err != nil {
			return nil, err
		}
		kubelets = append(kubelets, &kubelet{
			node:   node,
			number: i,
			dir:    nodeDir(dir, node.Name),
			socket: socket,
			client: client,
			log:    cfg.Log.With("node", node.Name),
			proc:   procfs.Tree{Root: filepath.Join(nodeDir(dir, node.Name), "proc")},
			queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		})
	}
	return kubelets, nil
}
