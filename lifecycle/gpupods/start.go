// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/workload"
)

// Settings are what a Store needs to know.
type Settings struct {
	// Names says which resources are GPUs; nil is [workload.DefaultNames].
	Names workload.Names
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
	stream  *stream
	logger  logr.Logger
	backoff *wait.Backoff // nil is client-go's own, up to 30 seconds
}

// defaultPage is about five megabytes of decoded pods.
const defaultPage = 500

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
	s := empty()
	s.logger = with.Logger
	s.stream = &stream{client: client.RESTClient(), reader: reader{names: with.Names, classes: with.DeviceClasses}, page: with.PageSize}
	if s.stream.reader.names == nil {
		s.stream.reader.names = workload.DefaultNames()
	}
	if s.stream.page <= 0 {
		s.stream.page = defaultPage
	}
	return s, nil
}

// Start fills the Store and keeps it true until ctx ends. It never returns
// before, and never with an error: what fails is tried again, ever more slowly,
// and until then what was known stays. Call it once.
func (s *Store) Start(ctx context.Context) error {
	reflector := cache.NewReflectorWithOptions(s.stream, &entry{}, sink{s}, cache.ReflectorOptions{
		Name: "gpupods", TypeDescription: "pods", Logger: &s.logger, Backoff: s.backoff,
	})
	// Used where the server lists by pages after all; it keeps a reflector from
	// asking for everything at once.
	reflector.WatchListPageSize = s.stream.page
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

// filled says that a whole list was taken in. Only the reflector calls it.
func (s *Store) filled() {
	if !s.HasSynced() {
		close(s.synced)
	}
}
