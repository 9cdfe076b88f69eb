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

// Store is the GPU pods as far as they are known: all of them as of some moment,
// once [Store.HasSynced]. It is safe for concurrent use; what it gives out is the
// caller's.
type Store struct {
	settings

	// mutex guards the maps; it is held for no longer than they are looked into.
	mutex        sync.RWMutex
	byName       map[podKey]*record
	byUID        map[string]*record
	byNamespace  index[interned]
	byController index[string]
	byNode       index[interned]

	subscribers
	synced chan struct{} // closed when all that was there is known
}

// podKey is a namespace and a name.
type podKey struct {
	namespace interned
	name      string
}

// newStore is a Store without pods.
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

// Len is how many there are.
func (s *Store) Len() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.byName)
}

// Get is the pod of that name, and false where there is none that asks for GPUs.
func (s *Store) Get(name types.NamespacedName) (*Pod, bool) {
	s.mutex.RLock()
	r, ok := s.byName[podKey{unique.Make(name.Namespace), name.Name}]
	s.mutex.RUnlock()
	return podOf(r, ok)
}

// ByUID is the pod of that UID, and false where there is none that asks for GPUs.
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

// InNamespace are the pods of a namespace, in no order.
func (s *Store) InNamespace(namespace string) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byNamespace.records[unique.Make(namespace)] })
}

// ControlledBy are the pods whose controller, the next owner and not the root,
// has that UID, in no order.
func (s *Store) ControlledBy(uid types.UID) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byController.records[string(uid)] })
}

// OnNode are the pods that are bound to a node, in no order.
func (s *Store) OnNode(node string) iter.Seq[*Pod] {
	return s.iterate(func() []*record { return s.byNode.records[unique.Make(node)] })
}

// All are all pods, in no order.
func (s *Store) All() iter.Seq[*Pod] {
	return s.iterate(func() []*record {
		all := make([]*record, 0, len(s.byName))
		for _, r := range s.byName {
			all = append(all, r)
		}
		return all
	})
}

// iterate gives the pods as they were when the loop began. Nothing is locked while
// its body runs.
func (s *Store) iterate(of func() []*record) iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		s.mutex.RLock()
		records := slices.Clone(of()) // records stay as they are, their order does not
		s.mutex.RUnlock()
		for _, r := range records {
			if !yield(r.toPod()) {
				return
			}
		}
	}
}

// Settings are what a Store needs to know.
type Settings struct {
	// Names says which resources are GPUs; nil is [workload.DefaultResourceUnits].
	Names workload.ResourceUnits
	// DeviceClasses are those whose devices are GPUs, for pods that ask for them as
	// if they were extended resources. Default none.
	DeviceClasses []string
	// PageSize is how many pods are decoded at a time where the server does not
	// stream lists. Default 500.
	PageSize int64
	// Logger hears of streams that broke. The zero value hears nothing.
	Logger logr.Logger
}

// settings are the Settings as they are used.
type settings struct {
	listWatcher *listWatcher
	logger      logr.Logger
	backoff     *wait.Backoff // nil is client-go's own, up to 30 seconds
}

// defaultPageSize is about five megabytes of decoded pods.
const defaultPageSize = 500

// New is a Store that [Store.Start] fills from the API server of cfg. It needs
// the right to list and watch pods in all namespaces. The error is one of cfg.
func New(cfg *rest.Config, with Settings) (*Store, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1 // the pages of a list follow each other; the server says when it is too much
	client, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("a client for pods: %w", err)
	}
	s := newStore()
	s.logger = with.Logger
	s.listWatcher = &listWatcher{client: client.RESTClient(), reader: podReader{gpuNames: with.Names, deviceClasses: with.DeviceClasses}, pageSize: with.PageSize}
	if s.listWatcher.reader.gpuNames == nil {
		s.listWatcher.reader.gpuNames = workload.DefaultResourceUnits()
	}
	if s.listWatcher.pageSize <= 0 {
		s.listWatcher.pageSize = defaultPageSize
	}
	return s, nil
}

// Start fills the Store and keeps it true until ctx ends. It never returns
// before, and never with an error: what fails is tried again, ever more slowly,
// and until then what was known stays. Call it once.
func (s *Store) Start(ctx context.Context) error {
	reflector := cache.NewReflectorWithOptions(s.listWatcher, &podEntry{}, reflectorStore{s}, cache.ReflectorOptions{
		Name: "gpupods", TypeDescription: "pods", Logger: &s.logger, Backoff: s.backoff,
	})
	// Used where the server lists by pages after all; it keeps a reflector from
	// asking for everything at once.
	reflector.WatchListPageSize = s.listWatcher.pageSize
	reflector.RunWithContext(logr.NewContext(ctx, s.logger))
	return nil
}

// NeedLeaderElection is false: a replica that waits for its turn knows the pods
// already when it comes.
func (s *Store) NeedLeaderElection() bool { return false }

// HasSynced is whether all pods that were there at one moment are known, and
// everybody was told of them.
func (s *Store) HasSynced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits for [Store.HasSynced]. The error is that of ctx.
func (s *Store) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the list of GPU pods: %w", ctx.Err())
	}
}

// Ready is a check for /readyz: it fails until [Store.HasSynced].
func (s *Store) Ready(*http.Request) error {
	if !s.HasSynced() {
		return errors.New("the GPU pods are not listed yet")
	}
	return nil
}

// markSynced says that a whole list was taken in. Only the reflector calls it.
func (s *Store) markSynced() {
	if !s.HasSynced() {
		close(s.synced)
	}
}
