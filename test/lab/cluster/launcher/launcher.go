// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package launcher runs the pods of a few namespaces as processes of this machine, with the
// commands, arguments, environment, files, identities and probes of the pods. It is a small
// kubelet for an installation whose images cannot run here, and serves the pods of every
// node. Run watches the pods that the scheduler has bound. For each pod it
//
//   - writes the volumes as folders, and replaces mount paths in arguments, environment and
//     ConfigMaps by those folders;
//   - gives each containerPort a port on loopback, and replaces the addresses to listen on;
//   - requests tokens that are bound to the pod, and names them in a kubeconfig
//     (KUBECONFIG), since a process has no /var/run/secrets of its own;
//   - starts the containers in a process.Group, probes them, restarts them by the pod's
//     restart policy, and reports the pod's status with an address of a block that no
//     network uses;
//   - ends a deleted pod with preStop, SIGTERM, its grace period and SIGKILL.
//
// A proxy leads the API server's connections to Services to ready endpoints.
//
// A pod whose spec the launcher does not support does not start; its status names the
// fields. Isolation is the exception, since containers are plain processes: they share the
// machine's files, network and process IDs. Without effect are readOnlyRootFilesystem,
// capabilities, privileged, seccomp and AppArmor profiles, fsGroup, limits of resources,
// read-only mounts, hostPID, runtimeClassName and dnsPolicy. runAsUser has an effect only if
// this process is root and the user can reach the program and the pod's folder.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	_ "embed"

	"sluice.dev/test/lab/cluster/process"
)

// RBAC holds, as YAML documents, the launcher's ServiceAccount (launcher, in namespace
// sluice-sim, which is not among them) and its rights.
//
//go:embed rbac.yaml
var RBAC []byte

// Config configures Run.
type Config struct {
	// API is the client configuration for the API server, with the rights in RBAC. Its host
	// is the server in the pods' kubeconfigs.
	API *rest.Config
	// Namespaces are those whose pods Run runs. No other kubelet may run them.
	Namespaces []string
	// Dir gets a folder for each pod (0700), named like its process.
	Dir string
	// Group runs the containers. The first container of a pod is named after the pod's
	// controller (a DaemonSet's also after the node), with -2, -3, ... for further replicas;
	// the others have the name of the container in addition.
	Group *process.Group
	// Programs are the paths of the programs by the name of their image, without registry
	// and tag, and by the last element of a container's command.
	Programs map[string]string
	// HostFolder returns the folder that replaces a path of a node's file system.
	HostFolder func(node, path string) string
	// ProxySocket is the Unix socket of the proxy to Services; empty for none.
	ProxySocket string
	// Kubelet is where the proxy leads connections to simulated nodes.
	Kubelet KubeletAddress
	// Log is the logger.
	Log *slog.Logger
}

// KubeletAddress is the address of the kubelets of simulated nodes: the Unix socket that
// serves all of them, and their port in the status of the nodes. The zero value is none.
type KubeletAddress struct {
	Socket string
	Port   int
}

// launcher runs pods; each has a worker.
type launcher struct {
	Config
	client kubernetes.Interface
	// skippedUsers logs once that users are skipped.
	skippedUsers sync.Once

	registry *registry
	wait     sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
	// ended are the pods whose last status was written. The informer may report an earlier one after that.
	ended  map[types.UID]bool
	stores map[string]namespaceStores
}

// namespaceStores have the objects of a namespace.
type namespaceStores struct{ configMaps, secrets cache.Store }

// resync is the interval at which the informers report every object again.
const resync = 10 * time.Minute

// Run runs the pods until ctx ends. It then ends the containers that still run, leaves the
// pods and their status as they are, and returns nil. The next Run starts the containers
// again, as a kubelet does after a reboot of the node.
func Run(ctx context.Context, cfg Config) error {
	api := rest.CopyConfig(cfg.API)
	api.QPS = -1 // it is many kubelets
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	l := &launcher{
		Config: cfg, client: client, registry: newRegistry(),
		workers: map[types.UID]*worker{}, ended: map[types.UID]bool{}, stores: map[string]namespaceStores{},
	}
	if err := l.run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("launcher: %w", err)
	}
	return nil
}

func (l *launcher) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	// The workers end with ctx, and end their containers.
	defer l.wait.Wait()
	if l.ProxySocket != "" {
		proxy := newProxy(l.registry, l.Kubelet, l.Log)
		proxy.watch(ctx, group, l.client, l.Namespaces)
		listener, err := listenUnix(ctx, l.ProxySocket)
		if err != nil {
			return err
		}
		group.Go(func() error { return proxy.serve(ctx, listener) })
	}
	for _, namespace := range l.Namespaces {
		if err := l.watch(ctx, group, namespace); err != nil {
			return err
		}
	}
	return group.Wait()
}

// watch starts the informers of a namespace.
func (l *launcher) watch(ctx context.Context, group *errgroup.Group, namespace string) error {
	core := l.client.CoreV1().RESTClient()
	informer := func(resource string, object runtime.Object, selector fields.Selector) cache.SharedIndexInformer {
		list := cache.NewListWatchFromClient(core, resource, namespace, selector)
		return cache.NewSharedIndexInformer(list, object, resync, cache.Indexers{})
	}
	configMaps := informer("configmaps", &corev1.ConfigMap{}, fields.Everything())
	secrets := informer("secrets", &corev1.Secret{}, fields.Everything())
	for _, source := range []cache.SharedIndexInformer{configMaps, secrets} {
		if _, err := source.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { l.refresh(namespace) },
			UpdateFunc: func(_, _ any) { l.refresh(namespace) },
			DeleteFunc: func(any) { l.refresh(namespace) },
		}); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.stores[namespace] = namespaceStores{configMaps.GetStore(), secrets.GetStore()}
	l.mu.Unlock()
	pods := informer("pods", &corev1.Pod{}, fields.OneTermNotEqualSelector("spec.nodeName", ""))
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { l.observe(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { l.observe(ctx, object.(*corev1.Pod)) },
		DeleteFunc: func(object any) { l.observeRemoval(object) },
	}); err != nil {
		return err
	}
	for _, source := range []cache.SharedIndexInformer{configMaps, secrets} {
		group.Go(func() error { source.RunWithContext(ctx); return nil })
	}
	group.Go(func() error {
		if !cache.WaitForCacheSync(ctx.Done(), configMaps.HasSynced, secrets.HasSynced) {
			return errors.New("stopped before the caches were filled")
		}
		pods.RunWithContext(ctx)
		return nil
	})
	return nil
}

// observe gives a pod to its worker. A pod that ended before has none.
func (l *launcher) observe(ctx context.Context, pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if existing := l.workers[pod.UID]; existing != nil {
		existing.update(pod)
		return
	}
	ended := l.ended[pod.UID] || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if (ended && pod.DeletionTimestamp == nil) || ctx.Err() != nil {
		return
	}
	w := l.newWorker(pod)
	l.workers[pod.UID] = w
	l.wait.Go(func() {
		ended := w.run(ctx)
		last := l.retire(w, ended)
		w.identity.release()
		if last != nil {
			l.observe(ctx, last)
		}
	})
}

// retire removes a worker, whose pod has ended or not. It returns the pod if its deletion was observed after the worker had read it for the last time:
// another worker has to finish the deletion.
func (l *launcher) retire(w *worker, ended bool) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	pod, gone := w.current()
	delete(l.workers, pod.UID)
	if !ended || gone {
		return nil
	}
	l.ended[pod.UID] = true
	if pod.DeletionTimestamp == nil {
		return nil
	}
	return pod
}

func (l *launcher) observeRemoval(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ended, pod.UID)
	if w := l.workers[pod.UID]; w != nil {
		w.markGone()
	}
}

// refresh makes the workers of a namespace write their volumes again.
func (l *launcher) refresh(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		if w.namespace == namespace {
			w.notify()
		}
	}
}

// configMap returns a ConfigMap of a namespace, or nil.
func (l *launcher) configMap(namespace, name string) *corev1.ConfigMap {
	l.mu.Lock()
	store := l.stores[namespace].configMaps
	l.mu.Unlock()
	object, _, _ := store.GetByKey(namespace + "/" + name)
	found, _ := object.(*corev1.ConfigMap)
	return found
}

// secret returns a Secret of a namespace, or nil.
func (l *launcher) secret(namespace, name string) *corev1.Secret {
	l.mu.Lock()
	store := l.stores[namespace].secrets
	l.mu.Unlock()
	object, _, _ := store.GetByKey(namespace + "/" + name)
	found, _ := object.(*corev1.Secret)
	return found
}

func (l *launcher) podDir(name string) string { return filepath.Join(l.Dir, name) }
