// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/dependency"
	"sluice.dev/policies/engine/document"
)

// ErrNoObject reports that an admission request has no object.
var ErrNoObject = errors.New("the input has no object")

// ErrNoTime reports that an admission request has no time. Without it a rule that reads the time
// would be undefined and refuse nothing.
var ErrNoTime = errors.New("the input has no time")

// Subject is what a policy's match is compared with.
type Subject struct {
	// Operation is CREATE or UPDATE. No policy is evaluated for other operations.
	Operation v1alpha1.PolicyOperation
	// Group and Kind are those of the object; group is empty for Pod. A pod template has
	// those of the pod.
	Group, Kind string
	// Department and Project are names; empty if the object has none.
	Department, Project string
	// Schedulers are the schedulers of the node pools that the object may use. Policies
	// for other schedulers, named schedulers.<scheduler> or replacing such a policy, are
	// not evaluated. Empty means all schedulers.
	Schedulers Schedulers
}

// Schedulers is a set of schedulers in a comparable form; see [SchedulersOf].
type Schedulers string

// SchedulersOf returns exactly these schedulers. SchedulersOf() is the empty set, which
// differs from all.
func SchedulersOf(schedulers ...v1alpha1.Scheduler) Schedulers {
	text := ","
	for _, scheduler := range schedulers {
		if !Schedulers(text).Has(scheduler) {
			text += string(scheduler) + ","
		}
	}
	return Schedulers(text)
}

// Has reports whether a scheduler is in the set.
func (s Schedulers) Has(scheduler v1alpha1.Scheduler) bool {
	return s == "" || strings.Contains(string(s), ","+string(scheduler)+",")
}

// Input is the input of one request. Documents that seldom change, such as the project,
// should be converted once and shared. The field of an absent document is undefined.
type Input struct {
	// Subject selects the policies to evaluate.
	Subject Subject
	// Review is the AdmissionRequest.
	Review document.Document
	// Object replaces the object in Review, unless it is absent. Policies see it as
	// input.object and input.review.object.
	Object document.Document
	// OldObject likewise replaces the object before an UPDATE.
	OldObject document.Document
	// Workload is the pod's GPU request.
	Workload document.Document
	// Project and Department own the object, and it may run in NodePools. They have no
	// status, which changes all the time.
	Project, Department, NodePools document.Document
	// Namespace is the object's namespace. Objects and requires cannot read input.namespace.
	Namespace document.Document
	// NodePool is set if the object is a node pool. Only objects and requires read
	// input.nodePool.
	NodePool document.Document
	// Usage is the project's present use, for messages. Mutating rules cannot read
	// input.use.
	Usage document.Document
	// Now is the time of the request in the department's zone. Policies read input.now as
	// RFC 3339, to the second.
	Now time.Time
	// Template: the object is the template of a future pod. A denial that depends on the
	// time or the present use becomes a warning, since it may not hold for the pod.
	Template bool
	// Existing: the object exists already. The findings of rules that depend on the time or the
	// present use are omitted, since they are about its creation.
	Existing bool
	// PausedUntil is the end of a pause, in policy time: the denials of policies that are not built in,
	// and replace none that is, are warnings. It is zero without a pause.
	PausedUntil time.Time
}

// inputFieldCount is the number of fields of input.
const inputFieldCount = 12

const (
	reviewField    = "review"
	objectField    = "object"
	oldObjectField = "oldObject"
)

var parametersTerm = document.KeyTerm(dependency.ParametersField)

// boundInput is an Input with all fields resolved. Each policy adds its parameters.
type boundInput struct {
	input  *Input
	names  [inputFieldCount]string
	fields [inputFieldCount]document.Document
	count  int
	// terms are the fields as OPA values, created on first use. withoutParameters is the
	// input of policies without parameters, which are most.
	terms             [][2]*ast.Term
	withoutParameters ast.Value
}

// bind resolves an Input once for all policies.
func (in *Input) bind() *boundInput {
	review, object, old := in.Review, in.object(), in.OldObject
	if old.IsAbsent() {
		old = review.Field("oldObject")
	}
	if !in.Object.IsAbsent() && !review.IsAbsent() {
		review = review.WithField("object", in.Object)
	}
	if !in.OldObject.IsAbsent() && !review.IsAbsent() {
		review = review.WithField("oldObject", in.OldObject)
	}
	b := &boundInput{input: in}
	b.add(reviewField, review)
	b.add(objectField, object)
	b.add(oldObjectField, old)
	b.add("workload", in.Workload)
	b.add("project", in.Project)
	b.add("department", in.Department)
	b.add("nodePools", in.NodePools)
	b.add(dependency.NamespaceField, in.Namespace)
	b.add(dependency.NodePoolField, in.NodePool)
	b.add(dependency.UsageField, in.Usage)
	if !in.Now.IsZero() {
		b.add(dependency.NowField, document.New(in.Now.Format(time.RFC3339)))
	}
	return b
}

// object returns the object of the request.
func (in *Input) object() document.Document {
	if in.Object.IsAbsent() {
		return in.Review.Field("object")
	}
	return in.Object
}

func (b *boundInput) add(name string, value document.Document) {
	if value.IsAbsent() {
		return
	}
	b.names[b.count], b.fields[b.count] = name, value
	b.count++
}

// field returns a field of input; absent if it is undefined.
func (b *boundInput) field(name string) document.Document {
	for i := range b.count {
		if b.names[i] == name {
			return b.fields[i]
		}
	}
	return document.Document{}
}

// prepare converts the fields: that is no policy's work.
func (b *boundInput) prepare() {
	if b.terms == nil {
		b.terms = b.fieldTerms()
	}
}

// withParameters returns the complete input of a policy with these parameters. It is not
// safe for concurrent use.
func (b *boundInput) withParameters(parameters *ast.Term) ast.Value {
	plain := parameters == ast.InternedEmptyObject
	if plain && b.withoutParameters != nil {
		return b.withoutParameters
	}
	b.prepare()
	value := ast.NewObject(append(b.terms, [2]*ast.Term{parametersTerm, parameters})...)
	if plain {
		b.withoutParameters = value
	}
	return value
}

// fieldTerms returns the fields as OPA values. The object is part of the review too and
// is converted once.
func (b *boundInput) fieldTerms() [][2]*ast.Term {
	terms := make([][2]*ast.Term, 0, inputFieldCount)
	for i := range b.count {
		var term *ast.Term
		switch name := b.names[i]; {
		case name == reviewField:
			term = b.reviewTerm()
		case name == objectField && !b.isObjectReplaced(name), name == oldObjectField && !b.isObjectReplaced(name):
			term = b.input.Review.FieldTerm(name)
		default:
			term = b.fields[i].Term()
		}
		terms = append(terms, [2]*ast.Term{document.KeyTerm(b.names[i]), term})
	}
	return slices.Clip(terms)
}

// isObjectReplaced reports whether another object replaces the one in the review.
func (b *boundInput) isObjectReplaced(name string) bool {
	if name == objectField {
		return !b.input.Object.IsAbsent()
	}
	return !b.input.OldObject.IsAbsent()
}

// reviewTerm returns the review with replaced objects.
func (b *boundInput) reviewTerm() *ast.Term {
	term := b.input.Review.Term()
	for _, name := range []string{objectField, oldObjectField} {
		object, ok := term.Value.(ast.Object)
		if !ok || !b.isObjectReplaced(name) {
			continue
		}
		pairs := make([][2]*ast.Term, 0, object.Len()+1)
		object.Foreach(func(key, old *ast.Term) {
			if key.Value != ast.String(name) {
				pairs = append(pairs, [2]*ast.Term{key, old})
			}
		})
		term = ast.NewTerm(ast.NewObject(append(pairs, [2]*ast.Term{document.KeyTerm(name), b.field(name).Term()})...))
	}
	return term
}
