// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/policies/engine"
)

// Look is one look at the cluster, in which nothing is read twice. It is for one
// goroutine.
type Look struct {
	live   client.Reader
	mapper meta.RESTMapper
	seen   map[object]sight
}

// NewLook begins a look. Objects are read with live, whose right to read what
// policies name somebody must have given it; the mapper knows which kinds there
// are.
func NewLook(live client.Reader, mapper meta.RESTMapper) *Look {
	return &Look{live: live, mapper: mapper, seen: make(map[object]sight)}
}

// object is where something is to be read.
type object struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// of is the object of a setting.
func of(s *engine.Setting) object {
	return object{kind: schema.FromAPIVersionAndKind(s.APIVersion, s.Kind), namespace: s.Namespace, name: s.Name}
}

// String is ConfigMap kueue-system/kueue-manager-config.
func (o object) String() string {
	if o.namespace == "" {
		return o.kind.Kind + " " + o.name
	}
	return o.kind.Kind + " " + o.namespace + "/" + o.name
}

// sight is what was seen of an object: its content, or why there is none to see.
type sight struct {
	content map[string]any
	// absent says that the object is not there, or its kind, in a sentence.
	absent string
	// barred says why nobody may or can look, and what to do about that.
	barred, fix string
}

// at reads an object. An error means that the API server could not be asked; it
// may be asked again.
func (l *Look) at(ctx context.Context, o object) (sight, error) {
	if seen, ok := l.seen[o]; ok {
		return seen, nil
	}
	seen, err := l.read(ctx, o)
	if err != nil {
		return sight{}, fmt.Errorf("looking at %s: %w", o, err)
	}
	l.seen[o] = seen
	return seen, nil
}

func (l *Look) read(ctx context.Context, o object) (sight, error) {
	mapping, err := l.mapper.RESTMapping(o.kind.GroupKind(), o.kind.Version)
	if meta.IsNoMatchError(err) {
		return sight{absent: fmt.Sprintf("the cluster has no kind %s in %s", o.kind.Kind, o.kind.GroupVersion())}, nil
	}
	if err != nil {
		return sight{}, err
	}
	if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (o.namespace != "") {
		if namespaced {
			return sight{barred: "a " + o.kind.Kind + " has a namespace, and the policy names none", fix: "mend the policy"}, nil
		}
		return sight{barred: "a " + o.kind.Kind + " has no namespace, and the policy names " + o.namespace, fix: "mend the policy"}, nil
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.kind)
	err = l.live.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, found)
	switch {
	case err == nil:
		return sight{content: found.Object}, nil
	// The mapper may remember a kind that is gone.
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return sight{absent: o.String() + " is not there"}, nil
	case apierrors.IsForbidden(err):
		return sight{
			barred: short(err.Error()),
			fix:    fmt.Sprintf("give Sluice's lifecycle controller the right to get %s/%s", mapping.Resource.GroupResource(), o.name),
		}, nil
	}
	return sight{}, err
}
