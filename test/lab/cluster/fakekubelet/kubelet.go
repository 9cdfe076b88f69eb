// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/fakekubelet/streaming"
	"sluice.dev/test/lab/cluster/process"
)

// Run simulates the kubelets of all nodes in cfg until ctx ends, and then returns nil. It
// waits for an unavailable API server. It fails at once if cfg is invalid, another process
// simulates a node, a checkpoint is invalid or a socket cannot be opened; later it fails if
// the API server rejects a Node. After any end it can be started again with the same Dir:
// pods keep their devices. SIGHUP makes the device plugins read the GPUs again.
func Run(ctx context.Context, cfg Config) error {
	kubelets, err := newKubelets(cfg)
	if err != nil {
		return fmt.Errorf("fake kubelet: %w", err)
	}
	// From here on SIGHUP restarts the device plugin and does not end this process.
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
					k.requestPluginRestart()
				}
			}
		}
	})
	if cfg.Streams != nil {
		streams, listener, unlock, err := openStreams(ctx, cfg, kubelets)
		if err != nil {
			return fmt.Errorf("fake kubelet: %w", err)
		}
		defer unlock()
		group.Go(func() error { return streams.Serve(ctx, listener) })
	}
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
		return nil, errors.New("Config.API is nil: set the client configuration of the API server")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("dir %q: %w", cfg.Dir, err)
	}
	api := rest.CopyConfig(cfg.API)
	// This process is many kubelets: a client-side limit would make them wait for each
	// other. The server has its own limit.
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
			proc:   procFS{Root: filepath.Join(nodeDir(dir, node.Name), "proc")},
			queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		})
	}
	return kubelets, nil
}

// kubelet simulates one node. One goroutine decides and alone writes the fields below
// queue; the PodResources server reads the state.
type kubelet struct {
	node   Node
	number int // index among the configured nodes
	dir    string
	socket string
	client kubernetes.Interface
	log    *slog.Logger

	// booted is set while there was no checkpoint, until the registration: the other
	// components' resources on the Node are then obsolete.
	booted bool

	gpus          *simulator.Node
	driver        nvml.Library // the GPUs as the device plugin uses them
	driverVersion string
	proc          procFS

	// streams serves the logs, exec, attach and port-forward of the node's pods; nil if the
	// node serves none.
	streams *streaming.Server

	queue workqueue.TypedRateLimitingInterface[string]
	pods  cache.Store // the pods on this node
	nodes cache.Store // this node

	// decisions holds the admission results of pods that have not ended. They prevent a
	// second decision on an outdated pod from the watch.
	decisions map[string]decision

	// The GPUs and devices that the device plugin last read and reported, and the memory of
	// each device. pluginReadyAt is the end of a restart, zero otherwise.
	discovered    []devices.GPU
	reported      []devices.Device
	memory        map[string]int64
	pluginReadyAt time.Time
	relabel       bool // the Node's labels may be outdated

	lastPID uint32 // of the processes on the node

	// mu guards state and discovered for the goroutines that only read them.
	mu    sync.RWMutex
	state devices.State
}

// decision is the admission result for the pod with this UID.
type decision struct {
	uid      types.UID
	admitted bool
}

// run simulates the node until ctx ends or a permanent error occurs.
func (k *kubelet) run(ctx context.Context) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("create the node's folder: %w", err)
	}
	lock, err := process.TryLock(filepath.Join(k.dir, "lock"))
	if err != nil {
		return fmt.Errorf("only one process can simulate a node: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // the end of the process unlocks it as well
	defer k.queue.ShutDown()
	if err := k.restore(); err != nil {
		return err
	}
	// Listen first: the agent connects to the driver also while the API server is
	// unavailable.
	driver, err := simulator.Listen(ctx, filepath.Join(k.dir, driverName))
	if err != nil {
		return fmt.Errorf("open the driver's socket: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return simulator.Serve(ctx, driver, k.gpus) })
	group.Go(func() error { return k.runKubelet(ctx) })
	return group.Wait()
}

// runKubelet runs the node without its driver.
func (k *kubelet) runKubelet(ctx context.Context) error {
	listener, err := listen(ctx, k.socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	// The first checkpoint marks the node as booted before.
	k.booted = false
	if err := k.saveState(k.state); err != nil {
		return err
	}
	return k.serve(ctx, listener)
}

// restore reads the assigned devices and the state of the GPUs.
func (k *kubelet) restore() error {
	holders, booted, err := readCheckpoint(k.dir, k.node.Name)
	if err != nil {
		return err
	}
	if k.gpus, err = restoreGPUs(k.dir, k.node, booted, k.log); err != nil {
		return err
	}
	k.driver = k.gpus.Open()
	if err := k.bootProc(booted); err != nil {
		return err
	}
	k.booted = booted
	k.state = devices.New(nil, holders)
	k.decisions = map[string]decision{}
	for _, holder := range holders {
		if holder.Running() {
			k.decisions[objectKey(holder.Namespace, holder.Name)] = decision{types.UID(holder.UID), true}
		}
	}
	return errors.Join(k.discoverDevices(), k.restoreProcesses())
}

// bootProc starts a boot in the node's /proc if it is needed.
func (k *kubelet) bootProc(booted bool) error {
	id, err := k.proc.BootID()
	if err == nil && (booted || id == "") {
		err = k.proc.Boot()
	}
	if err != nil {
		return fmt.Errorf("boot the node's /proc: %w", err)
	}
	return nil
}

// serve watches pods and the Node, admits pods, and serves PodResources once it knows the
// node's pods.
func (k *kubelet) serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, k.queue.ShutDown)
	pods, nodes := k.informers()
	k.pods, k.nodes = pods.GetStore(), nodes.GetStore()
	for _, informer := range []cache.SharedIndexInformer{pods, nodes} {
		group.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	if cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, nodes.HasSynced) {
		if k.streams != nil {
			k.streams.Add(k.node.Name, streaming.Node{Pod: k.podNamed, Container: k.containerView})
		}
		server := &podResources{deviceHolders: k.deviceHolders}
		group.Go(func() error { return server.serve(ctx, listener) })
		group.Go(func() error {
			k.log.Info("Started node", "socket", k.socket)
			k.admitExistingPods(ctx)
			// From here on SIGHUP has an effect on the device plugin.
			if err := k.proc.LinkProcess(os.Getpid()); err != nil {
				return fmt.Errorf("write the node's /proc: %w", err)
			}
			k.processQueue(ctx)
			return k.proc.UnlinkProcess(os.Getpid())
		})
	}
	return group.Wait()
}

// saveState writes the checkpoint and then makes next the node's state.
func (k *kubelet) saveState(next devices.State) error {
	if err := writeCheckpoint(k.dir, k.node.Name, next); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = next
	return nil
}
