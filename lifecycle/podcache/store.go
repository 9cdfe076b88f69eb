// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"unique"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/workload"
)

// Store caches the GPU pods. It is complete after [Store.HasSynced]. It is safe for
// concurrent use, and callers may change the Pods that it returns.
type Store struct {
	settings

	// mutex guards the maps.
	mutex        sync.RWMutex
	byName       map[podKey]*record
	byUID        map[string]*record
	byNamespace  index[interned]
	byController index[string]
	byNode       index[interned]

	projections []projection
	subscribers
	synced chan struct{} // closed after the first complete list
}

type podKey struct {
	namespace interned
	name      string
}

func newStore() *Store {
	return &Store{
		byName:       map[podKey]*record{},
		byUID:        map[string]*record{},
		byNamespace:  newIndex[interned](namespaceIndex),
		byController: newIndex[string](controllerIndex),
		byNode:       newIndex[interned](nodeIndex),
		subscribers:  subscribers{handlers: map[int]func(Change){}},
		synced:       make(chan struct{}),
	}
}

// ByUID returns a pod by UID, and false if there is no such GPU pod.
func (s *Store) ByUID(uid types.UID) (*Pod, bool) {
	s.mutex.RLock()
	r, ok := s.byUID[string(uid)]
	s.mutex.RUnlock()
	return podOf(r, ok)
}

func podOf(r *record, ok bool) (*Pod, bool) {
	if !ok {
		return nil, false
	}
	return r.toPod(), true
}

// InNamespace returns the pods of a namespace, in no order.
func (s *Store) InNamespace(namespace string) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byNamespace.records[unique.Make(namespace)] })
}

// ControlledBy returns the pods of a direct controller, in no order.
func (s *Store) ControlledBy(uid types.UID) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byController.records[string(uid)] })
}

// OnNode returns the pods that are bound to a node, in no order.
func (s *Store) OnNode(node string) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byNode.records[unique.Make(node)] })
}

// All returns all pods, in no order.
func (s *Store) All() iter.Seq[*Pod] {
	return s.iterate(func() []*record {
		all := make([]*record, 0, len(s.byName))
		for _, r := range s.byName {
			all = append(all, r)
		}
		return all
	})
}

// iterate returns the pods as of the start of the loop. The Store is not locked while the
// body of the loop runs.
func (s *Store) iterate(of func() []*record) iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		s.mutex.RLock()
		records := slices.Clone(of()) // records do not change, but the slice does
		s.mutex.RUnlock()
		for _, r := range records {
			if !yield(r.toPod()) {
				return
			}
		}
	}
}

// Settings configure a Store.
type Settings struct {
	// Names are the resources that are GPUs; nil means [workload.DefaultResourceUnits].
	Names workload.ResourceUnits
	// DeviceClasses are the DeviceClasses of GPUs, for pods that request them as extended
	// resources. Default none.
	DeviceClasses []string
	// PageSize is the number of pods in a page if the server does not stream lists. Default
	// 500.
	PageSize int64
	// Logger logs broken watches. The zero value logs nothing.
	Logger logr.Logger
}
type settings struct {
	listWatcher *listWatcher
	logger      logr.Logger
	backoff     *wait.Backoff // nil means client-go's default, up to 30 seconds
}

// defaultPageSize is about five megabytes of decoded pods.
const defaultPageSize = 500

// New returns a Store that [Store.Start] fills from the API server of cfg. It needs the
// permission to list and watch pods in all namespaces.
func New(cfg *rest.Config, with Settings) (*Store, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1 // pages are requested one after another; the server limits the rate
	client, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create pod client: %w", err)
	}
	s := newStore()
	s.logger = with.Logger
	s.listWatcher = &listWatcher{
		client: client.RESTClient(), reader: podReader{gpuNames: with.Names, deviceClasses: with.DeviceClasses},
		project: s.project, pageSize: with.PageSize,
	}
	if s.listWatcher.reader.gpuNames == nil {
		s.listWatcher.reader.gpuNames = workload.DefaultResourceUnits()
	}
	if s.listWatcher.pageSize <= 0 {
		s.listWatcher.pageSize = defaultPageSize
	}
	return s, nil
}

// Start fills the Store and keeps it current until ctx ends. It returns no error: failed
// requests are retried with backoff, and the Store keeps its pods meanwhile. Call it once.
func (s *Store) Start(ctx context.Context) error {
	reflector := cache.NewReflectorWithOptions(s.listWatcher, &podEntry{}, reflectorStore{s}, cache.ReflectorOptions{
		Name: "podcache", TypeDescription: "pods", Logger: &s.logger, Backoff: s.backoff,
	})
	// Keeps the reflector from requesting one unpaged list if the server does not stream.
	reflector.WatchListPageSize = s.listWatcher.pageSize
	reflector.RunWithContext(logr.NewContext(ctx, s.logger))
	return nil
}

// NeedLeaderElection returns false, so that a standby replica has the pods when it becomes
// the leader.
func (s *Store) NeedLeaderElection() bool { return false }

// HasSynced reports whether the first list is complete and all subscribers were called.
func (s *Store) HasSynced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits for [Store.HasSynced] or the end of ctx.
func (s *Store) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the list of GPU pods: %w", ctx.Err())
	}
}

// Ready is a readiness check. It fails until [Store.HasSynced].
func (s *Store) Ready(*http.Request) error {
	if !s.HasSynced() {
		return errors.New("the list of GPU pods is not complete yet")
	}
	return nil
}

// markSynced is called by the reflector after each complete list.
func (s *Store) markSynced() {
	if !s.HasSynced() {
		close(s.synced)
	}
}
