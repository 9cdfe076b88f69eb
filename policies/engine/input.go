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

// ErrNoObject means that an admission question without an object cannot be asked.
var ErrNoObject = errors.New("the input has no object")

// ErrNoTime means that an admission question needs the time of the request, since a rule
// that reads it would otherwise be undefined, and so refuse nothing.
var ErrNoTime = errors.New("the input has no time")

// Subject is what a policy's match is compared with.
type Subject struct {
	// Operation is CREATE or UPDATE; no policy is asked about any other.
	Operation v1alpha1.PolicyOperation
	// Group and Kind are those of the object; group is empty for Pod. For a pod
	// template they are those of the pod.
	Group, Kind string
	// Department and Project are names; empty where the object has none.
	Department, Project string
	// Schedulers are those of the node pools that the object may use. What speaks for
	// another scheduler, by its name schedulers.<scheduler> or in that one's place, is
	// not asked. Empty asks them all.
	Schedulers Schedulers
}

// Schedulers are some of the schedulers, in a form that can be compared: see [Serving].
type Schedulers string

// SchedulersOf are these schedulers and no others; none of them is not all.
func SchedulersOf(schedulers ...v1alpha1.Scheduler) Schedulers {
	text := ","
	for _, scheduler := range schedulers {
		if !Schedulers(text).has(scheduler) {
			text += string(scheduler) + ","
		}
	}
	return Schedulers(text)
}

func (s Schedulers) has(scheduler v1alpha1.Scheduler) bool {
	return s == "" || strings.Contains(string(s), ","+string(scheduler)+",")
}

// Input is what policies are asked about. Documents that seldom change, such as
// the project, are meant to be converted once and shared. An absent document's
// field is undefined.
type Input struct {
	// Subject decides which policies are asked.
	Subject Subject
	// Review is the AdmissionRequest.
	Review document.Document
	// Object is the object, in place of the one in Review; absent, that one.
	// Policies see it as input.object and as input.review.object.
	Object document.Document
	// OldObject is the object before an UPDATE, likewise.
	OldObject document.Document
	// Workload is what the pod asks for.
	Workload document.Document
	// Project, Department and NodePools are whose the object is and where it may
	// run. They are without status, which changes from moment to moment.
	Project, Department, NodePools document.Document
	// NodePool is the node pool that the object is. Policies read it as
	// input.nodePool, in objects and requires only.
	NodePool document.Document
	// Usage is the project's present use. Policies read it as input.use, and for
	// messages only: rules that change the object cannot.
	Usage document.Document
	// Now is the time of the request, in the department's zone. Policies read it as
	// input.now: RFC 3339, to the second.
	Now time.Time
	// Template tells that the object is the template of a pod that does not exist
	// yet. What a rule that reads the time or the present use would refuse is then
	// a warning, since by the time of the pod it may be otherwise.
	Template bool
}

// inputFieldCount is how many fields input may have.
const inputFieldCount = 11

const (
	reviewField    = "review"
	objectField    = "object"
	oldObjectField = "oldObject"
)

var parametersTerm = document.KeyTerm(dependency.ParametersField)

// boundInput is an Input with what follows from its parts, ready to be joined with each
// policy's parameters.
type boundInput struct {
	input  *Input
	names  [inputFieldCount]string
	fields [inputFieldCount]document.Document
	count  int
	// terms are the fields as policies see them, once one is asked; plain is the
	// input of the policies without parameters: most.
	terms             [][2]*ast.Term
	withoutParameters ast.Value
}

// bind completes an Input once for all policies.
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
	b.add(dependency.NodePoolField, in.NodePool)
	b.add(dependency.UsageField, in.Usage)
	if !in.Now.IsZero() {
		b.add(dependency.NowField, document.New(in.Now.Format(time.RFC3339)))
	}
	return b
}

// object is the object that the question is about.
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

// field is a field of the input; absent where it is undefined.
func (b *boundInput) field(name string) document.Document {
	for i := range b.count {
		if b.names[i] == name {
			return b.fields[i]
		}
	}
	return document.Document{}
}

// withParameters returns the whole input of a policy with these parameters. It is called
// by one goroutine at a time.
func (b *boundInput) withParameters(parameters *ast.Term) ast.Value {
	plain := parameters == ast.InternedEmptyObject
	if plain && b.withoutParameters != nil {
		return b.withoutParameters
	}
	if b.terms == nil {
		b.terms = b.fieldTerms()
	}
	value := ast.NewObject(append(b.terms, [2]*ast.Term{parametersTerm, parameters})...)
	if plain {
		b.withoutParameters = value
	}
	return value
}

// fieldTerms are the fields as policies see them. The object is part of the review too,
// and is made once.
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

// isObjectReplaced tells whether another object stands in the place of the review's.
func (b *boundInput) isObjectReplaced(name string) bool {
	if name == objectField {
		return !b.input.Object.IsAbsent()
	}
	return !b.input.OldObject.IsAbsent()
}

// reviewTerm is the review with the objects in their places.
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
