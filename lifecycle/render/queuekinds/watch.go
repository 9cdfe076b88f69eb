// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queuekinds

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"sluice.dev/lifecycle/render"
)

// Settings say what is watched.
type Settings struct {
	// Kinds are those that come from CRDs.
	Kinds []schema.GroupVersionKind
	// LookEvery is how often the API server is asked whether it serves them, in
	// machine time; every 10 s where it is 0.
	LookEvery time.Duration
	// Logger tells of kinds that come and go.
	Logger logr.Logger
}

// Watch knows the objects of the kinds that are served. It runs in every replica,
// whether it leads or not, so that one that takes over knows them.
type Watch struct {
	settings  Settings
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	// looked is closed once it is known which kinds there are, and what there is of
	// them.
	looked chan struct{}

	mu        sync.RWMutex
	served    map[schema.GroupVersionKind]*informer
	absent    map[schema.GroupVersionKind]bool
	listeners []listener
}

var (
	_ manager.LeaderElectionRunnable = (*Watch)(nil)
	_ render.QueueKindsSeen          = (*Watch)(nil)
)

// New makes a Watch, which is to be started.
func New(config *rest.Config, client *http.Client, settings Settings) (*Watch, error) {
	if settings.LookEvery <= 0 {
		settings.LookEvery = 10 * time.Second
	}
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("asking which kinds are served: %w", err)
	}
	read, err := metadata.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("watching metadata: %w", err)
	}
	return &Watch{
		settings: settings, discovery: asked, metadata: read,
		looked: make(chan struct{}),
		served: map[schema.GroupVersionKind]*informer{}, absent: map[schema.GroupVersionKind]bool{},
	}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *Watch) NeedLeaderElection() bool { return false }

// Watched implements render.QueueKindsSeen.
func (w *Watch) Watched(kind schema.GroupVersionKind) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.served[kind] != nil && w.served[kind].told
}

// Absent implements render.QueueKindsSeen.
func (w *Watch) Absent(kind schema.GroupVersionKind) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.absent[kind]
}

// Of implements render.QueueKindsSeen.
func (w *Watch) Of(kind schema.GroupVersionKind, subject render.SubjectKind, name string) []*metav1.PartialObjectMetadata {
	w.mu.RLock()
	watched := w.served[kind]
	w.mu.RUnlock()
	if watched == nil {
		return nil
	}
	return watched.of(subject, name)
}

// Start looks at the kinds until ctx ends. It implements manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	defer w.stop()
	w.look(ctx)
	close(w.looked)
	wait.UntilWithContext(ctx, w.look, w.settings.LookEvery)
	return nil
}
