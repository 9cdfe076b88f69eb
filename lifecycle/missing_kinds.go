// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sluice.dev/api/policytime"
)

// missingKindTTL is how long a kind counts as not installed after the API server did not have it.
const missingKindTTL = 10 * time.Second

// missingKinds is a RESTMapper that remembers for missingKindTTL which kinds are not installed. For each question about such
// a kind, controller-runtime's mapper reads all kinds from the API server, while all other questions wait. The stop of a
// thousand projects asks more than ten thousand times.
type missingKinds struct {
	meta.RESTMapper
	now func() time.Time

	mu      sync.Mutex
	missing map[string]missingKind
}

type missingKind struct {
	err   error
	until time.Time
}

// newMapper returns the RESTMapper of lifecycle.
func newMapper(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return nil, err
	}
	return &missingKinds{RESTMapper: mapper, now: policytime.MachineNow, missing: map[string]missingKind{}}, nil
}

// RESTMapping implements meta.RESTMapper.
func (m *missingKinds) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	key := fmt.Sprint(kind, versions)
	if err := m.remembered(key); err != nil {
		return nil, err
	}
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if meta.IsNoMatchError(err) {
		m.remember(key, err)
	}
	return mapping, err
}

// remembered returns the error for a kind that is not installed, or nil if that is not known.
func (m *missingKinds) remembered(key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.missing[key]; m.now().Before(found.until) {
		return found.err
	}
	return nil
}

// remember remembers a kind that is not installed, and forgets those of earlier. Pods may have owners of any kind.
func (m *missingKinds) remember(key string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for other, found := range m.missing {
		if !now.Before(found.until) {
			delete(m.missing, other)
		}
	}
	m.missing[key] = missingKind{err, now.Add(missingKindTTL)}
}
