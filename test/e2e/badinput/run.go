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

// edit makes a valid object wrong, or different.
type edit struct {
	name string
	// patch is a JSON merge patch, in YAML.
	patch string
	// field is the path that the refusal must name.
	field string
	// wantMessage is what the refusal must say besides.
	wantMessage string
}

// table is what is tried with one kind.
type table struct {
	kind string
	// allowed are edits of the valid object that are accepted at its creation.
	allowed []edit
	// refused are edits that are refused at its creation.
	refused []edit
	// immutable are edits that are refused once the object is there.
	immutable []edit
	// mutable are edits that are accepted then.
	mutable []edit
	// status are edits of the status that are refused.
	status []edit
}

func tables() []table {
	return []table{
		nodePoolTable(), departmentTable(), projectTable(), policyTable(), gpuNodeTable(),
		workloadClockTable(), extensionTable(), noticeTable(), usageRecordTable(), admissionParametersTable(),
	}
}

// Run tries every table on the cluster that c speaks to.
func Run(t *testing.T, c client.Client) {
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, table := range tables() {
		t.Run(table.kind, func(t *testing.T) {
			t.Run("every field of the spec is made wrong", table.checkComplete)
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
	expectAccepted(t, create, valid, edit{name: "as it is"})
	for _, e := range k.allowed {
		expectAccepted(t, create, valid, e)
	}
	for _, e := range k.refused {
		expectRefused(t, create, valid, e)
	}
}

func (k table) tryUpdate(t *testing.T, c client.Client) {
	valid := k.loadValid(t)
	there := valid.DeepCopy()
	if err := c.Create(t.Context(), there); err != nil {
		t.Fatalf("create the valid object: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), there); err != nil { // the test's own context has ended
			t.Errorf("delete the valid object: %v", err)
		}
	})

	update := func(ctx context.Context, object *unstructured.Unstructured) error {
		return c.Update(ctx, object, client.DryRunAll)
	}
	for _, e := range k.mutable {
		expectAccepted(t, update, there, e)
	}
	for _, e := range k.immutable {
		expectRefused(t, update, there, e)
	}

	if _, hasStatus := valid.Object["status"]; !hasStatus {
		if len(k.status) > 0 {
			t.Fatal("there are edits of the status, and the valid object has none")
		}
		return // configuration, which has no status
	}
	there.Object["status"] = valid.DeepCopy().Object["status"]
	if err := c.Status().Update(t.Context(), there); err != nil {
		t.Fatalf("update the status to the valid one: %v", err)
	}
	if _, has := there.Object["status"]; !has {
		t.Fatal("the valid status is gone")
	}
	updateStatus := func(ctx context.Context, object *unstructured.Unstructured) error {
		return c.Status().Update(ctx, object, client.DryRunAll)
	}
	for _, e := range k.status {
		expectRefused(t, updateStatus, there, e)
	}
}

type writeFunc func(context.Context, *unstructured.Unstructured) error

func expectAccepted(t *testing.T, write writeFunc, valid *unstructured.Unstructured, e edit) {
	t.Run("allowed: "+e.name, func(t *testing.T) {
		if err := write(t.Context(), e.patchObject(t, valid)); err != nil {
			t.Errorf("refused: %v", err)
		}
	})
}

func expectRefused(t *testing.T, write writeFunc, valid *unstructured.Unstructured, e edit) {
	t.Run("refused: "+e.name, func(t *testing.T) {
		err := write(t.Context(), e.patchObject(t, valid))
		switch {
		case err == nil:
			t.Fatal("accepted")
		case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
			t.Fatalf("failed for another reason: %v", err)
		}
		t.Log(err) // to be read with -v, as whoever made the mistake reads it
		for _, part := range []string{e.field, e.wantMessage} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal does not say %q: %v", part, err)
			}
		}
		// A text that is no quantity cannot be compared with one, and a guard would
		// cost more than Kubernetes 1.30 lets a rule cost.
		if message := err.Error(); strings.Contains(message, "evaluating rule") && !strings.Contains(message, "quantities must match") {
			t.Errorf("a rule failed instead of answering: %v", err)
		}
	})
}

// validFiles are one valid object of each kind, with every field set.
//
//go:embed valid
var validFiles embed.FS

// loadValid is a copy of the kind's valid object.
func (k table) loadValid(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	raw, err := validFiles.ReadFile("valid/" + strings.ToLower(k.kind) + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: parse(t, string(raw))}
}

// patchObject is the valid object with the edit in it.
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
	// Through unstructured's own decoder, whose integers are the ones it can copy.
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
