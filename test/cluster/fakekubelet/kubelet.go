// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/filelock"
)

// kubelet plays one node. One goroutine decides, and is alone in writing the
// fields below queue; the PodResources server reads them.
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

	queue workqueue.TypedRateLimitingInterface[string]
	pods  cache.Store // the pods on this node
	nodes cache.Store // this node

	// decided has what was said of the pods that are not over. The watch may
	// show one as it was before: it is not decided twice.
	decided map[string]decision

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
	if err := k.restore(); err != nil {
		return err
	}
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

// restore reads who holds what.
func (k *kubelet) restore() error {
	holders, booted, err := readCheckpoint(k.dir, k.node.Name)
	if err != nil {
		return err
	}
	k.booted = booted
	k.state = devices.New(k.node.Machine.Devices(k.node.Name), holders)
	k.decided = map[string]decision{}
	for _, holder := range holders {
		if holder.Lives() {
			k.decided[keyOf(holder.Namespace, holder.Name)] = decision{types.UID(holder.UID), true}
		}
	}
	return nil
}

// serve watches and decides, and answers PodResources once it knows the node's
// pods.
func (k *kubelet) serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
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
			k.work(ctx)
			return nil
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
