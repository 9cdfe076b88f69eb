// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrNotFound means that no workload has the name. Errors of [Reader.Find] wrap it.
var ErrNotFound = errors.New("not found")

// MissingError means that no workload of a namespace has a name. It wraps [ErrNotFound].
type MissingError struct {
	// What is the kind that was named, or workload.
	What, Name, Namespace string
	// Others are the names of the workloads of the namespace, the first few.
	Others []string
}

// Error implements error.
func (e *MissingError) Error() string {
	if len(e.Others) == 0 {
		return fmt.Sprintf("%s %s %v: namespace %s has no workloads; choose another with -n or -p", e.What, e.Name, ErrNotFound, e.Namespace)
	}
	return fmt.Sprintf("%s %s %v in namespace %s, which has %s", e.What, e.Name, ErrNotFound, e.Namespace, strings.Join(e.Others, ", "))
}

// Unwrap returns [ErrNotFound].
func (e *MissingError) Unwrap() error { return ErrNotFound }

// PartError means that a name is that of a part of a workload, such as a pod. It wraps [ErrNotFound].
type PartError struct {
	Name     string
	Workload *Workload
	// pod reports that the part is a pod.
	pod bool
}

// Error implements error.
func (e *PartError) Error() string {
	part := "it belongs to "
	if e.pod {
		part = "it is a pod of "
	}
	return fmt.Sprintf("workload %s %v: %s%s/%s", e.Name, ErrNotFound, part,
		strings.ToLower(e.Workload.Object.GetKind()), e.Workload.Object.GetName())
}

// Unwrap returns [ErrNotFound].
func (e *PartError) Unwrap() error { return ErrNotFound }

// Reference is how a user names a workload: NAME or KIND/NAME.
type Reference struct {
	// Resource is the kind in any form that kubectl accepts, in lower case; empty for all kinds.
	Resource string
	Name     string
}

// ParseReference parses NAME or KIND/NAME.
func ParseReference(text string) (Reference, error) {
	resource, name, hasKind := strings.Cut(text, "/")
	if !hasKind {
		resource, name = "", text
	}
	if name == "" || hasKind && resource == "" || strings.ContainsAny(name, "/ ") {
		return Reference{}, fmt.Errorf("%q: want NAME or KIND/NAME, such as training or job/training", text)
	}
	return Reference{Resource: strings.ToLower(resource), Name: name}, nil
}

// ResolveKind resolves job, jobs, jobs.batch and jobs.v1.batch alike.
func ResolveKind(mapper meta.RESTMapper, resource string) (schema.GroupVersionKind, error) {
	versioned, grouped := schema.ParseResourceArg(resource)
	if versioned != nil {
		if kind, err := mapper.KindFor(*versioned); err == nil {
			return kind, nil
		}
	}
	kind, err := mapper.KindFor(grouped.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return kind, fmt.Errorf("kind %q: the cluster has no such kind; name the workload without it, or with another, such as job or deployment", resource)
	}
	if err != nil {
		return kind, fmt.Errorf("kind %q: %w", resource, err)
	}
	return kind, nil
}

// Find returns the workload of a namespace that NAME or KIND/NAME names. The name of a part of a workload, such as
// one of its pods, is a [PartError]. A name that several workloads have is an error that names these.
func (r Reader) Find(ctx context.Context, namespace, text string) (*Workload, error) {
	reference, err := ParseReference(text)
	if err != nil {
		return nil, err
	}
	var kind schema.GroupVersionKind
	if reference.Resource != "" {
		if kind, err = ResolveKind(r.RESTMapper(), reference.Resource); err != nil {
			return nil, err
		}
	}
	list, err := r.List(ctx, namespace)
	if err != nil {
		return nil, addNamespaceHint(err, namespace)
	}
	return choose(list, namespace, reference, kind.GroupKind())
}

// addNamespaceHint adds to the error of a denied request which namespaces a user may read.
func addNamespaceHint(err error, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	if namespace == "" {
		return fmt.Errorf("%w; name a namespace with -n, or one of your projects with -p", err)
	}
	return fmt.Errorf("%w; namespace %s belongs to none of your projects: `sluice whoami` shows these", err, namespace)
}

// choose returns the only workload that a reference names. The kind is empty for all kinds.
func choose(list []*Workload, namespace string, reference Reference, kind schema.GroupKind) (*Workload, error) {
	var found []*Workload
	for _, w := range list {
		if w.Object.GetName() == reference.Name && (kind.Empty() || w.Object.GroupVersionKind().GroupKind() == kind) {
			found = append(found, w)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, explainMissing(list, namespace, reference, kind)
	}
	var references []string
	for _, w := range found {
		references = append(references, strings.ToLower(w.Object.GetKind())+"/"+w.Object.GetName())
	}
	return nil, fmt.Errorf("%d workloads in namespace %s are named %s: name one of %s", len(found), namespace, reference.Name, strings.Join(references, ", "))
}

// explainMissing returns why no workload has the name: a pod of a workload may have it, or a similar one.
func explainMissing(list []*Workload, namespace string, reference Reference, kind schema.GroupKind) error {
	var names []string
	for _, w := range list {
		for _, pod := range w.Pods {
			if pod.Name == reference.Name && (kind.Empty() || kind == podKind) {
				return &PartError{Name: reference.Name, Workload: w, pod: true}
			}
		}
		for _, part := range w.Parts {
			if part.GetName() == reference.Name && (kind.Empty() || kind == part.GroupVersionKind().GroupKind()) {
				return &PartError{Name: reference.Name, Workload: w}
			}
		}
		if !slices.Contains(names, w.Object.GetName()) {
			names = append(names, w.Object.GetName())
		}
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return &MissingError{What: cmp.Or(kind.Kind, "workload"), Name: reference.Name, Namespace: namespace, Others: names}
}
