// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requirements checks whether a cluster meets the requirements of policies, and
// reads the settings that policies use.
//
// A setting is found by a path into an object: through maps by key, lists by index, and
// texts, which are parsed as YAML ([Find], without a cluster). An object is found by its
// name, or by the text at a path. Objects are read live,
// since a cache would keep other people's objects for the sake of one field. A
// [Checker] reads no object twice.
package requirements

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/policies/engine"
)

const (
	// maxSettings is the most settings of a pool, maxSettingLength the length of one in
	// bytes.
	maxSettings      = 32
	maxSettingLength = 1024
)

// Findings are the result of a check.
type Findings struct {
	// Missing are the requirements that are not met, in their order.
	Missing []Missing
	// Settings are the settings that policies use, by the names that they gave them; nil
	// if there are none.
	Settings map[string]string
}

// Missing is a requirement that is not met.
type Missing struct {
	// Policy is the policy with the requirement.
	Policy string
	// Problem is what is missing or wrong.
	Problem string
	// Fix is what to do.
	Fix string
	// Advisory: the node pool accepts pods without it.
	Advisory bool
}

// IsBlocking reports whether a requirement is missing without which the node pool accepts no pods.
func (f Findings) IsBlocking() bool {
	return slices.ContainsFunc(f.Missing, func(missing Missing) bool { return !missing.Advisory })
}

// Messages returns one message for each fix, with the problems that it solves.
func (f Findings) Messages() []string {
	type remedy struct{ policy, fix string }
	var order []remedy
	problems := make(map[remedy][]string)
	for _, missing := range f.Missing {
		c := remedy{missing.Policy, missing.Fix}
		if problems[c] == nil {
			order = append(order, c)
		}
		problems[c] = append(problems[c], missing.Problem)
	}
	sentences := make([]string, 0, len(order))
	for _, c := range order {
		sentences = append(sentences, strings.Join(problems[c], ", ")+": "+c.fix+" (policy "+c.policy+")")
	}
	return sentences
}

// Check checks the requirements. The settings in known are those of the last check: one
// that cannot be read keeps its value. An error means that the API server did not
// answer.
func (c *Checker) Check(ctx context.Context, requires []engine.Requirement, known map[string]string) (Findings, error) {
	var found Findings
	givenBy := make(map[string]string)
	for i := range requires {
		r := &requires[i]
		var wrong *Missing
		var err error
		switch {
		case r.CRD != "":
			wrong, err = c.checkCRD(ctx, r)
		case r.As == "":
			wrong, err = c.checkSetting(ctx, r)
		case givenBy[r.As] != "" && givenBy[r.As] != r.Policy:
			wrong = newMissing(r, "policy "+givenBy[r.As]+" has a setting "+r.As+", too", "give it another name in one of the two")
		case len(found.Settings) == maxSettings:
			wrong = newMissing(r, "the policies use more than 32 settings", "remove "+r.As)
		default:
			givenBy[r.As] = r.Policy
			if found.Settings == nil {
				found.Settings = make(map[string]string)
			}
			found.Settings[r.As], wrong, err = c.readSetting(ctx, r, known)
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
	return &Missing{Policy: r.Policy, Problem: what, Fix: fix, Advisory: r.Advisory}
}

// Checker reads objects of the cluster, each once. It is for one goroutine.
type Checker struct {
	live   client.Reader
	mapper meta.RESTMapper
	cache  map[objectRef]objectState
}

// NewChecker returns a Checker that reads objects with live, which needs the right to
// read what policies name. The mapper knows the kinds.
func NewChecker(live client.Reader, mapper meta.RESTMapper) *Checker {
	return &Checker{live: live, mapper: mapper, cache: make(map[objectRef]objectState)}
}

// objectRef identifies an object.
type objectRef struct {
	kind            schema.GroupVersionKind
	namespace, name string
	// wherePath and whereIs select the object if it has no name: the keys of a path, joined by
	// pathSeparator, and the text there.
	wherePath, whereIs string
}

const pathSeparator = "\x00"

// settingObject returns the object of a setting.
func settingObject(s *engine.Setting) objectRef {
	o := objectRef{kind: schema.FromAPIVersionAndKind(s.APIVersion, s.Kind), namespace: s.Namespace, name: s.Name}
	if s.Where != nil {
		o.wherePath, o.whereIs = strings.Join(s.Where.Path, pathSeparator), s.Where.Is
	}
	return o
}

// String returns, for example, ConfigMap kueue-system/kueue-manager-config, or "the SchedulingShard
// whose spec.partitionLabelValue is a100".
func (o objectRef) String() string {
	switch {
	case o.wherePath != "":
		return fmt.Sprintf("the %s whose %s is %q", o.kind.Kind, formatPath(strings.Split(o.wherePath, pathSeparator)), o.whereIs)
	case o.namespace == "":
		return o.kind.Kind + " " + o.name
	}
	return o.kind.Kind + " " + o.namespace + "/" + o.name
}

// objectState is the content of an object, or why there is none.
type objectState struct {
	content map[string]any
	// absent is a sentence that the object or its kind does not exist.
	absent string
	// unreadable is why the object cannot be read, fix what to do about that.
	unreadable, fix string
}

// get reads an object. An error means that the API server did not answer.
func (c *Checker) get(ctx context.Context, o objectRef) (objectState, error) {
	if state, ok := c.cache[o]; ok {
		return state, nil
	}
	state, err := c.fetch(ctx, o)
	if err != nil {
		return objectState{}, fmt.Errorf("read %s: %w", o, err)
	}
	c.cache[o] = state
	return state, nil
}

func (c *Checker) fetch(ctx context.Context, o objectRef) (objectState, error) {
	mapping, err := c.mapper.RESTMapping(o.kind.GroupKind(), o.kind.Version)
	if meta.IsNoMatchError(err) {
		return objectState{absent: fmt.Sprintf("the cluster has no kind %s in %s", o.kind.Kind, o.kind.GroupVersion())}, nil
	}
	if err != nil {
		return objectState{}, err
	}
	if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (o.namespace != "") {
		if namespaced {
			return objectState{unreadable: "a " + o.kind.Kind + " has a namespace, and the policy names none", fix: "correct the policy"}, nil
		}
		return objectState{
			unreadable: "a " + o.kind.Kind + " has no namespace, and the policy names " + o.namespace,
			fix:        "correct the policy",
		}, nil
	}
	verb := "get"
	var found map[string]any
	if o.wherePath != "" {
		verb = "list"
		found, err = c.find(ctx, o)
	} else {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(o.kind)
		err = c.live.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, object)
		found = object.Object
	}
	switch {
	// The mapper may know a kind that is gone.
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), err == nil && found == nil:
		return objectState{absent: o.String() + " does not exist"}, nil
	case err == nil:
		return objectState{content: found}, nil
	case apierrors.IsForbidden(err):
		resource := mapping.Resource.GroupResource().String()
		if o.name != "" {
			resource += "/" + o.name
		}
		return objectState{
			unreadable: truncate(err.Error()),
			fix:        fmt.Sprintf("give Sluice's lifecycle controller the right to %s %s", verb, resource),
		}, nil
	}
	return objectState{}, err
}

// maxListed is the most objects of a kind among which one is selected.
const maxListed = 500

// find returns the object that o selects, the first by name; nil if there is none among the first
// maxListed.
func (c *Checker) find(ctx context.Context, o objectRef) (map[string]any, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(o.kind)
	if err := c.live.List(ctx, list, client.InNamespace(o.namespace), client.Limit(maxListed)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		value, _, err := Find(list.Items[i].Object, strings.Split(o.wherePath, pathSeparator))
		if text, isText := value.(string); err == nil && (isText || value == nil) && text == o.whereIs {
			return list.Items[i].Object, nil
		}
	}
	return nil, nil
}
