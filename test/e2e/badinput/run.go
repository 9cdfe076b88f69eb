// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"context"
	"embed"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// edit is a change that makes a valid object invalid, or different.
type edit struct {
	name string
	// patch is a JSON merge patch, in YAML.
	patch string
	// field is the path that the rejection must name.
	field string
	// wantMessage is a text that the rejection must contain as well.
	wantMessage string
}

// table lists the edits of one kind.
type table struct {
	kind string
	// allowed edits of the valid object are accepted at creation.
	allowed []edit
	// rejected edits are rejected at creation.
	rejected []edit
	// immutable edits are rejected after creation.
	immutable []edit
	// mutable edits are accepted after creation.
	mutable []edit
	// status edits make the status invalid and are rejected.
	status []edit
}

func tables() []table {
	return []table{
		nodePoolTable(), departmentTable(), projectTable(), policyTable(), gpuNodeTable(),
		workloadClockTable(), extensionTable(), noticeTable(), usageRecordTable(), admissionParametersTable(), projectParametersTable(),
		presetTable(),
	}
}

// Run runs all tables against the cluster of the client.
func Run(t *testing.T, c client.Client) {
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, table := range tables() {
		t.Run(table.kind, func(t *testing.T) {
			t.Run("every field of the spec is covered", table.checkComplete)
			t.Run("Go types", func(t *testing.T) { table.checkGoTypes(t, strict) })
			t.Run("create", func(t *testing.T) { table.tryCreate(t, strict) })
			t.Run("update", func(t *testing.T) { table.tryUpdate(t, strict) })
		})
	}
}

func (k table) tryCreate(t *testing.T, c client.Client) {
	create := func(ctx context.Context, object *unstructured.Unstructured) error {
		return c.Create(ctx, object, client.DryRunAll)
	}
	valid := k.loadValid(t)
	expectAccepted(t, create, valid, edit{name: "unchanged"})
	for _, e := range k.allowed {
		expectAccepted(t, create, valid, e)
	}
	for _, e := range k.rejected {
		expectRejected(t, create, valid, e)
	}
}

func (k table) tryUpdate(t *testing.T, c client.Client) {
	valid := k.loadValid(t)
	stored := valid.DeepCopy()
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatalf("create the valid object: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), stored); err != nil { // the test's own context has ended
			t.Errorf("delete the valid object: %v", err)
		}
	})

	update := func(ctx context.Context, object *unstructured.Unstructured) error {
		return c.Update(ctx, object, client.DryRunAll)
	}
	for _, e := range k.mutable {
		expectAccepted(t, update, stored, e)
	}
	for _, e := range k.immutable {
		expectRejected(t, update, stored, e)
	}

	if _, hasStatus := valid.Object["status"]; !hasStatus {
		if len(k.status) > 0 {
			t.Fatal("the table has edits of the status, and the valid object has no status")
		}
		return // configuration, which has no status
	}
	stored.Object["status"] = valid.DeepCopy().Object["status"]
	if err := c.Status().Update(t.Context(), stored); err != nil {
		t.Fatalf("update to the valid status: %v", err)
	}
	if _, has := stored.Object["status"]; !has {
		t.Fatal("the API server dropped the valid status")
	}
	updateStatus := func(ctx context.Context, object *unstructured.Unstructured) error {
		return c.Status().Update(ctx, object, client.DryRunAll)
	}
	for _, e := range k.status {
		expectRejected(t, updateStatus, stored, e)
	}
}

type writeFunc func(context.Context, *unstructured.Unstructured) error

func expectAccepted(t *testing.T, write writeFunc, valid *unstructured.Unstructured, e edit) {
	t.Run("allowed: "+e.name, func(t *testing.T) {
		if err := write(t.Context(), e.patchObject(t, valid)); err != nil {
			t.Errorf("rejected: %v", err)
		}
	})
}

func expectRejected(t *testing.T, write writeFunc, valid *unstructured.Unstructured, e edit) {
	t.Run("rejected: "+e.name, func(t *testing.T) {
		err := write(t.Context(), e.patchObject(t, valid))
		switch {
		case err == nil:
			t.Fatal("the API server accepted it")
		case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
			t.Fatalf("failed for another reason: %v", err)
		}
		t.Log(err) // shows with -v the message that a user reads
		for _, part := range []string{e.field, e.wantMessage} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the rejection does not contain %q: %v", part, err)
			}
		}
		// CEL cannot compare an invalid quantity. A guard in the rule would exceed the cost
		// limit of Kubernetes 1.30.
		if message := err.Error(); strings.Contains(message, "evaluating rule") && !strings.Contains(message, "quantities must match") {
			t.Errorf("a rule failed to evaluate: %v", err)
		}
	})
}

// validFiles contains one valid object of each kind, with every field set.
//
//go:embed valid
var validFiles embed.FS

// loadValid returns a copy of the kind's valid object.
func (k table) loadValid(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	raw, err := validFiles.ReadFile("valid/" + strings.ToLower(k.kind) + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: parse(t, string(raw))}
}

// patchObject returns a copy of the valid object with the edit applied.
func (e edit) patchObject(t *testing.T, valid *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	object := valid.DeepCopy()
	if e.patch == "" {
		return object
	}
	merge(object.Object, parse(t, e.patch))
	if reflect.DeepEqual(object, valid) {
		t.Fatal("the edit changes nothing")
	}
	return object
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		present, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(present, inner)
		default:
			into[key] = value
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	// The decoder of unstructured returns the integer type that DeepCopy supports.
	object := unstructured.Unstructured{}
	wrapped, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Wrapper", "content": json.RawMessage(raw)})
	if err != nil {
		t.Fatal(err)
	}
	if err := object.UnmarshalJSON(wrapped); err != nil {
		t.Fatal(err)
	}
	content, ok := object.Object["content"].(map[string]any)
	if !ok {
		t.Fatalf("%s: want an object", text)
	}
	return content
}
