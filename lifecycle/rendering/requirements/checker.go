// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requirements looks whether a cluster has what policies require of it.
//
// Enters: what policies require ([engine.Requirement]), and the API server.
// Leaves: what is missing, with what to do about it, and the settings that
// policies want to know ([Findings]).
//
// A setting is found by walking an object along a path, through lists by index
// and through texts, which are read as YAML. That is done without the cluster
// ([Find]); the objects are read live, since a cache would keep other people's
// objects in memory for the sake of one field.
//
// It never writes, and never reads an object twice in one [Look].
package requirements

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/policies/engine"
)

const (
	// maxSettings is how many settings a pool may have, maxValue how long one may be,
	// in bytes.
	maxSettings      = 32
	maxSettingLength = 1024
)

// Findings are what was found of what policies require.
type Findings struct {
	// Missing is what is not as it must be, in the order of the requirements.
	Missing []Missing
	// Settings are what policies want to know, by the names that they gave it; nil
	// where they want to know nothing.
	Settings map[string]string
}

// Missing is a requirement that is not met.
type Missing struct {
	// Policy is whose requirement it is.
	Policy string
	// Problem says what is missing, or what is wrong.
	Problem string
	// Fix is what to do.
	Fix string
}

// Messages say what is missing, each with what to do: once for all that has one
// cure.
func (f Findings) Messages() []string {
	type cure struct{ policy, fix string }
	var order []cure
	lacks := make(map[cure][]string)
	for _, missing := range f.Missing {
		c := cure{missing.Policy, missing.Fix}
		if lacks[c] == nil {
			order = append(order, c)
		}
		lacks[c] = append(lacks[c], missing.Problem)
	}
	sentences := make([]string, 0, len(order))
	for _, c := range order {
		sentences = append(sentences, strings.Join(lacks[c], ", ")+": "+c.fix+" (policy "+c.policy+")")
	}
	return sentences
}

// Check looks at what policies require. The settings in known are those of the
// time before: where one cannot be looked at, it stays what it was. An error
// means that the API server could not be asked; nothing is known then.
func (l *Checker) Check(ctx context.Context, requires []engine.Requirement, known map[string]string) (Findings, error) {
	var found Findings
	givenBy := make(map[string]string)
	for i := range requires {
		r := &requires[i]
		var wrong *Missing
		var err error
		switch {
		case r.CRD != "":
			wrong, err = l.checkCRD(ctx, r)
		case r.As == "":
			wrong, err = l.checkSetting(ctx, r)
		case givenBy[r.As] != "" && givenBy[r.As] != r.Policy:
			wrong = newMissing(r, "the setting "+r.As+" is what policy "+givenBy[r.As]+" calls it too", "choose another name in one of the two")
		case len(found.Settings) == maxSettings:
			wrong = newMissing(r, "the policies want to know more than 32 settings", "leave out "+r.As)
		default:
			givenBy[r.As] = r.Policy
			if found.Settings == nil {
				found.Settings = make(map[string]string)
			}
			found.Settings[r.As], wrong, err = l.readSetting(ctx, r, known)
		}
		if err != nil {
			return Findings{}, err
		}
		if wrong != nil {
			found.Missing = append(found.Missing, *wrong)
		}
	}
	return found, nil
}

func newMissing(r *engine.Requirement, what, fix string) *Missing {
	return &Missing{Policy: r.Policy, Problem: what, Fix: fix}
}

// Checker is one look at the cluster, in which nothing is read twice. It is for one
// goroutine.
type Checker struct {
	live   client.Reader
	mapper meta.RESTMapper
	cache  map[objectRef]objectState
}

// NewChecker begins a look. Objects are read with live, whose right to read what
// policies name somebody must have given it; the mapper knows which kinds there
// are.
func NewChecker(live client.Reader, mapper meta.RESTMapper) *Checker {
	return &Checker{live: live, mapper: mapper, cache: make(map[objectRef]objectState)}
}

// objectRef is where something is to be read.
type objectRef struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// settingObject is the object of a setting.
func settingObject(s *engine.Setting) objectRef {
	return objectRef{kind: schema.FromAPIVersionAndKind(s.APIVersion, s.Kind), namespace: s.Namespace, name: s.Name}
}

// String is ConfigMap kueue-system/kueue-manager-config.
func (o objectRef) String() string {
	if o.namespace == "" {
		return o.kind.Kind + " " + o.name
	}
	return o.kind.Kind + " " + o.namespace + "/" + o.name
}

// objectState is what was seen of an object: its content, or why there is none to see.
type objectState struct {
	content map[string]any
	// absent says that the object is not there, or its kind, in a sentence.
	absent string
	// unreadable says why nobody may or can look, and what to do about that.
	unreadable, fix string
}

// get reads an object. An error means that the API server could not be asked; it
// may be asked again.
func (l *Checker) get(ctx context.Context, o objectRef) (objectState, error) {
	if seen, ok := l.cache[o]; ok {
		return seen, nil
	}
	seen, err := l.fetch(ctx, o)
	if err != nil {
		return objectState{}, fmt.Errorf("looking at %s: %w", o, err)
	}
	l.cache[o] = seen
	return seen, nil
}

func (l *Checker) fetch(ctx context.Context, o objectRef) (objectState, error) {
	mapping, err := l.mapper.RESTMapping(o.kind.GroupKind(), o.kind.Version)
	if meta.IsNoMatchError(err) {
		return objectState{absent: fmt.Sprintf("the cluster has no kind %s in %s", o.kind.Kind, o.kind.GroupVersion())}, nil
	}
	if err != nil {
		return objectState{}, err
	}
	if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (o.namespace != "") {
		if namespaced {
			return objectState{unreadable: "a " + o.kind.Kind + " has a namespace, and the policy names none", fix: "mend the policy"}, nil
		}
		return objectState{unreadable: "a " + o.kind.Kind + " has no namespace, and the policy names " + o.namespace, fix: "mend the policy"}, nil
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.kind)
	err = l.live.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, found)
	switch {
	case err == nil:
		return objectState{content: found.Object}, nil
	// The mapper may remember a kind that is gone.
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return objectState{absent: o.String() + " is not there"}, nil
	case apierrors.IsForbidden(err):
		return objectState{
			unreadable: truncate(err.Error()),
			fix:        fmt.Sprintf("give Sluice's lifecycle controller the right to get %s/%s", mapping.Resource.GroupResource(), o.name),
		}, nil
	}
	return objectState{}, err
}
