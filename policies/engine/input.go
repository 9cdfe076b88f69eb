// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
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
}

// Input is what policies are asked about. Documents that seldom change, such as
// the project, are meant to be converted once and shared. An absent document's
// field is undefined.
type Input struct {
	// Subject decides which policies are asked.
	Subject Subject
	// Review is the AdmissionRequest.
	Review Document
	// Object is the object, in place of the one in Review; absent, that one.
	// Policies see it as input.object and as input.review.object.
	Object Document
	// OldObject is the object before an UPDATE, likewise.
	OldObject Document
	// Workload is what the pod asks for.
	Workload Document
	// Project, Department and NodePools are whose the object is and where it may
	// run. They are without status, which changes from moment to moment.
	Project, Department, NodePools Document
	// Use is the project's present use. Policies read it as input.use, and for
	// messages only: rules that change the object cannot.
	Use Document
	// Now is the time of the request, in the department's zone. Policies read it as
	// input.now: RFC 3339, to the second.
	Now time.Time
	// Template tells that the object is the template of a pod that does not exist
	// yet. What a rule that reads the time or the present use would refuse is then
	// a warning, since by the time of the pod it may be otherwise.
	Template bool
}

// inputFieldCount is how many fields input may have.
const inputFieldCount = 10

var parametersTerm = keyTerm("parameters")

// bound is an Input as terms, ready to be joined with each policy's parameters.
type bound struct {
	documents [inputFieldCount]Document
	fields    [inputFieldCount][2]*ast.Term
	count     int
	// plain is the input of the policies without parameters: most.
	plain ast.Value
}

// bind converts an Input once for all policies.
func (in *Input) bind() *bound {
	review, object, old := in.Review, in.object(), in.OldObject
	if old.Absent() {
		old = review.Field("oldObject")
	}
	if !in.Object.Absent() && !review.Absent() {
		review = review.With("object", in.Object)
	}
	if !in.OldObject.Absent() && !review.Absent() {
		review = review.With("oldObject", in.OldObject)
	}
	// The parts of the review that were not replaced are still of its text.
	review.from = in.Review.from
	b := &bound{}
	b.add("review", review)
	b.add("object", object)
	b.add("oldObject", old)
	b.add("workload", in.Workload)
	b.add("project", in.Project)
	b.add("department", in.Department)
	b.add("nodePools", in.NodePools)
	b.add(useField, in.Use)
	if !in.Now.IsZero() {
		b.add(nowField, Document{term: ast.StringTerm(in.Now.Format(time.RFC3339))})
	}
	return b
}

// object is the object that the question is about.
func (in *Input) object() Document {
	if in.Object.Absent() {
		return in.Review.Field("object")
	}
	return in.Object
}

func (b *bound) add(name string, document Document) {
	if document.Absent() {
		return
	}
	b.documents[b.count] = document
	b.fields[b.count] = [2]*ast.Term{keyTerm(name), document.term}
	b.count++
}

// document is a field of the input; absent where it is undefined.
func (b *bound) document(name string) Document {
	for i := range b.count {
		if b.fields[i][0].Value == ast.String(name) {
			return b.documents[i]
		}
	}
	return Document{}
}

// with returns the whole input of a policy with these parameters. It is called
// by one goroutine at a time.
func (b *bound) with(parameters *ast.Term) ast.Value {
	plain := parameters == ast.InternedEmptyObject
	if plain && b.plain != nil {
		return b.plain
	}
	fields := b.fields
	fields[b.count] = [2]*ast.Term{parametersTerm, parameters}
	value := ast.NewObject(fields[:b.count+1]...)
	if plain {
		b.plain = value
	}
	return value
}
