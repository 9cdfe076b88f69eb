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
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/gpuagent/nvml/simulator/served"
	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/fakekubelet/plugin"
	"sluice.dev/test/cluster/fakekubelet/procfs"
	"sluice.dev/test/cluster/filelock"
)

// kubelet plays one node. One goroutine decides, and is alone in writing the
// fields below queue; the PodResources server reads the state.
type kubelet struct {
	node   Node
	number int // among the configured nodes
	dir    string
	socket string
	client kubernetes.Interface
	log    *slog.Logger

	// booted: there was no checkpoint, so what others keep on the Node is old.
	// It ends with the registration.
	booted bool

	gpus   *simulator.Node
	driver nvml.Library // the GPUs as the device plugin uses them
	proc   procfs.Tree

	queue workqueue.TypedRateLimitingInterface[string]
	pods  cache.Store // the pods on this node
	nodes cache.Store // this node

	// decided has what was said of the pods that are not over. The watch may
	// show one as it was before: it is not decided twice.
	decided map[string]decision

	// What the device plugin saw and reported when it last looked, and how much
	// memory each device has; and when it is back, where it is away.
	seen       []plugin.GPU
	reported   []devices.Device
	memory     map[string]int64
	pluginBack time.Time
	relabel    bool // the labels may be of what it saw before

	lastPID uint32 // of the processes on the node

	mu    sync.RWMutex
	state devices.State
}

// decision is about the pod of a name that has this UID.
type decision struct {
	uid      types.UID
	admitted bool
}

// run plays the node until ctx ends or something fails that trying again would
// not change.
func (k *kubelet) run(ctx context.Context) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("make the node's folder: %w", err)
	}
	lock, err := filelock.Try(filepath.Join(k.dir, "lock"))
	if err != nil {
		return fmt.Errorf("one process at a time can play a node: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // the end of the process does it as well
	defer k.queue.ShutDown()
	if err := k.restore(); err != nil {
		return err
	}
	// The agent dials the driver: it answers while the API server is away.
	driver, err := served.Listen(ctx, filepath.Join(k.dir, driverName))
	if err != nil {
		return fmt.Errorf("the driver's socket: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return served.Serve(ctx, driver, k.gpus) })
	group.Go(func() error { return k.runKubelet(ctx) })
	return group.Wait()
}

// runKubelet is the node without its driver.
func (k *kubelet) runKubelet(ctx context.Context) error {
	listener, err := listen(ctx, k.socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	// From its first checkpoint on the node is one that has been up before.
	k.booted = false
	if err := k.keep(k.state); err != nil {
		return err
	}
	return k.serve(ctx, listener)
}

// restore reads who holds what, and how the GPUs are.
func (k *kubelet) restore() error {
	holders, booted, err := readCheckpoint(k.dir, k.node.Name)
	if err != nil {
		return err
	}
	if k.gpus, err = openGPUs(k.dir, k.node, booted, k.log); err != nil {
		return err
	}
	k.driver = k.gpus.Open()
	if err := k.bootProc(booted); err != nil {
		return err
	}
	k.booted = booted
	k.state = devices.New(nil, holders)
	k.decided = map[string]decision{}
	for _, holder := range holders {
		if holder.Lives() {
			k.decided[keyOf(holder.Namespace, holder.Name)] = decision{types.UID(holder.UID), true}
		}
	}
	return errors.Join(k.enumerateFirst(), k.restoreProcesses())
}

// bootProc begins a boot in the node's /proc, where there is one.
func (k *kubelet) bootProc(booted bool) error {
	id, err := k.proc.BootID()
	if err == nil && (booted || id == "") {
		err = k.proc.Boot()
	}
	if err != nil {
		return fmt.Errorf("the node's /proc: %w", err)
	}
	return nil
}

// serve watches and decides, and answers PodResources once it knows the node's
// pods.
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
		server := &podResources{holdings: k.holdings}
		group.Go(func() error { return server.serve(ctx, listener) })
		group.Go(func() error {
			k.log.Info("the node is up", "socket", k.socket)
			k.admitInitial(ctx)
			// From here on it is worth while to signal the device plugin.
			if err := k.proc.Link(os.Getpid()); err != nil {
				return fmt.Errorf("the node's /proc: %w", err)
			}
			k.work(ctx)
			return k.proc.Unlink(os.Getpid())
		})
	}
	return group.Wait()
}

// keep makes next the node's state: on disk first.
func (k *kubelet) keep(next devices.State) error {
	if err := writeCheckpoint(k.dir, k.node.Name, next); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = next
	return nil
}
