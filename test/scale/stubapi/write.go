// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// writeRequest is a write in progress.
type writeRequest struct {
	server *Server
	target *target
	verb   string
	body   map[string]any
	dryRun bool

	counted       Write
	before, after map[string]any
}

// write performs a write, counts it, calls the reactions and responds.
func (s *Server) write(w http.ResponseWriter, r *http.Request, t *target) error {
	tree, err := readBody(r)
	if err != nil {
		return err
	}
	c := &writeRequest{server: s, target: t, body: tree, dryRun: r.URL.Query().Get("dryRun") != ""}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch r.Method {
	case http.MethodPost:
		c.verb = "create"
		if t.subresource == "eviction" {
			c.verb, t.subresource = "delete", ""
		}
	case http.MethodPut:
		c.verb = "update"
	case http.MethodPatch:
		switch types.PatchType(media) {
		case types.ApplyYAMLPatchType:
			c.verb = "apply"
		case types.MergePatchType, types.StrategicMergePatchType:
			c.verb = "patch"
		default:
			return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", t.table.kind.groupResource(), t.name,
				"the stub knows merge and apply patches, not "+media, 0, false)
		}
	case http.MethodDelete:
		c.verb = "delete"
	}
	resource := t.table.kind.groupResource().String()
	if t.subresource != "" {
		resource += "/" + t.subresource
	}
	c.counted = Write{c.verb, resource}
	s.store.count(s.store.writes, c.counted)
	return c.answer(w, r)
}

func (c *writeRequest) answer(w http.ResponseWriter, r *http.Request) error {
	if c.verb == "create" {
		c.target.name = c.name()
	}
	known := c.target.table.kind.Status && c.target.subresource == "status"
	if c.target.subresource != "" && !known && c.target.subresource != "finalize" {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, c.verb, c.target.table.kind.groupResource(), c.target.name,
			"the stub has no "+c.target.subresource, 0, false)
	}
	o, err := c.server.store.put(c.target.table, c.target.key(), c.apply)
	if err != nil {
		return err
	}
	if !c.dryRun && !reflect.DeepEqual(c.before, c.after) {
		c.server.store.count(c.server.store.changes, c.counted)
		for _, react := range c.server.reactions {
			react(c.server, c.target.table.kind, c.before, c.after)
		}
	}
	if o == nil {
		writeJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
		return nil
	}
	code := http.StatusOK
	if c.before == nil {
		code = http.StatusCreated
	}
	return writeObject(w, code, o, negotiateEncoding(r, &c.target.table.kind))
}

// name returns the name of the object to create.
func (c *writeRequest) name() string {
	if c.target.name != "" {
		return c.target.name
	}
	u := unstructured.Unstructured{Object: c.body}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + string(uuid.NewUUID())[:8])
	}
	return u.GetName()
}

// apply returns the new object. The store calls it.
func (c *writeRequest) apply(before *object, version uint64) (*object, error) {
	kind := &c.target.table.kind
	switch {
	case c.verb == "create" && before != nil:
		return nil, apierrors.NewAlreadyExists(kind.groupResource(), c.target.name)
	case before == nil && c.verb != "create" && c.verb != "apply":
		return nil, apierrors.NewNotFound(kind.groupResource(), c.target.name)
	case c.target.name == "":
		return nil, apierrors.NewBadRequest("metadata.name: is required")
	}
	if before != nil {
		var err error
		if c.before, err = before.content(); err != nil {
			return nil, err
		}
	}
	after, err := c.nextState()
	if err != nil {
		return nil, err
	}
	c.after = after
	switch {
	case c.dryRun && before == nil: // the response has the new object
		return nil, nil
	case c.dryRun, before != nil && reflect.DeepEqual(after, c.before):
		return before, nil
	case after == nil:
		return nil, nil
	}
	return kind.newObject(after, version)
}

// nextState returns the object after the change; nil if it is deleted.
func (c *writeRequest) nextState() (map[string]any, error) {
	if c.verb == "delete" {
		return c.markDeleted()
	}
	after := c.body
	if (c.verb == "patch" || c.verb == "apply") && c.before != nil {
		body := c.body
		if c.verb == "apply" && c.target.subresource == "status" {
			body, _ = mergeStatusLists(c.before, body).(map[string]any)
		}
		after = applyMergePatch(runtime.DeepCopyJSON(c.before), body)
	}
	if after == nil {
		return nil, apierrors.NewBadRequest("the request has no object")
	}
	u, was := unstructured.Unstructured{Object: after}, unstructured.Unstructured{Object: c.before}
	if c.before == nil {
		c.setCreationFields(&u)
		return after, nil
	}
	if expected, ok, _ := unstructured.NestedString(c.body, "metadata", "resourceVersion"); ok && expected != "" &&
		expected != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.target.table.kind.groupResource(), c.target.name,
			fmt.Errorf("the object has been modified: it is at version %s", was.GetResourceVersion()))
	}
	after = c.restrictToSubresource(after)
	u.Object = after
	for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "name", "namespace"} {
		restoreField(after, c.before, "metadata", key)
	}
	after["apiVersion"], after["kind"] = c.before["apiVersion"], c.before["kind"]
	if !reflect.DeepEqual(specOf(after), specOf(c.before)) {
		u.SetGeneration(was.GetGeneration() + 1)
	}
	if was.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		return nil, nil
	}
	return after, nil
}

// restrictToSubresource limits a write to the status or to the other fields.
func (c *writeRequest) restrictToSubresource(after map[string]any) map[string]any {
	switch {
	case c.target.subresource == "status":
		status := after["status"]
		after = runtime.DeepCopyJSON(c.before)
		after["status"] = status
		if status == nil {
			delete(after, "status")
		}
	case c.target.table.kind.Status:
		restoreField(after, c.before, "status")
	}
	return after
}

// setCreationFields sets the metadata of a new object.
func (c *writeRequest) setCreationFields(u *unstructured.Unstructured) {
	u.SetName(c.target.name)
	u.SetNamespace(c.target.namespace)
	u.SetUID(uuid.NewUUID())
	u.SetGeneration(1)
	u.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	version, kind := c.target.table.kind.ToAPIVersionAndKind()
	u.SetAPIVersion(version)
	u.SetKind(kind)
	if c.target.table.kind.Status && c.target.table.kind.Resource != "pods" {
		delete(u.Object, "status")
	}
}

// markDeleted returns nil, or the object if it has finalizers.
func (c *writeRequest) markDeleted() (map[string]any, error) {
	was := unstructured.Unstructured{Object: c.before}
	for _, condition := range []struct{ key, value string }{{"uid", string(was.GetUID())}, {"resourceVersion", was.GetResourceVersion()}} {
		if expected, ok, _ := unstructured.NestedString(c.body, "preconditions", condition.key); ok && expected != condition.value {
			return nil, apierrors.NewConflict(c.target.table.kind.groupResource(), c.target.name,
				fmt.Errorf("precondition failed: %s is %s", condition.key, condition.value))
		}
	}
	if len(was.GetFinalizers()) == 0 {
		return nil, nil
	}
	after := unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.before)}
	if after.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		after.SetDeletionTimestamp(&now)
	}
	return after.Object, nil
}

// applyMergePatch applies a merge patch by RFC 7386.
func applyMergePatch(to, patch map[string]any) map[string]any {
	for key, value := range patch {
		below, ok := value.(map[string]any)
		switch present, same := to[key].(map[string]any); {
		case value == nil:
			delete(to, key)
		case ok && same:
			to[key] = applyMergePatch(present, below)
		case ok:
			to[key] = applyMergePatch(map[string]any{}, below)
		default:
			to[key] = value
		}
	}
	return to
}

// mergeStatusLists returns an applied status with the elements of its lists merged into
// those of the present ones, by their type or name: each controller applies its own
// conditions and fields. The stub removes none.
func mergeStatusLists(before, applied any) any {
	switch applied := applied.(type) {
	case map[string]any:
		present, _ := before.(map[string]any)
		merged := make(map[string]any, len(applied))
		for key, value := range applied {
			merged[key] = mergeStatusLists(present[key], value)
		}
		return merged
	case []any:
		present, _ := before.([]any)
		merged := runtime.DeepCopyJSONValue(present).([]any) //nolint:forcetypeassert // a copy of the same
		for _, value := range applied {
			element, ok := value.(map[string]any)
			if !ok {
				return applied // a list of scalars is replaced
			}
			at := slices.IndexFunc(merged, func(other any) bool {
				known, _ := other.(map[string]any)
				return known["type"] == element["type"] && known["name"] == element["name"]
			})
			if at < 0 {
				merged = append(merged, element)
				continue
			}
			known, _ := merged[at].(map[string]any)
			merged[at] = applyMergePatch(known, element)
		}
		return merged
	default:
		return applied
	}
}

// restoreField restores the old value of a field.
func restoreField(after, before map[string]any, path ...string) {
	if value, ok, _ := unstructured.NestedFieldCopy(before, path...); ok {
		_ = unstructured.SetNestedField(after, value, path...) // metadata is an object in every stored object
		return
	}
	unstructured.RemoveNestedField(after, path...)
}

// specOf returns an object without metadata and status.
func specOf(tree map[string]any) map[string]any {
	spec := maps.Clone(tree)
	delete(spec, "metadata")
	delete(spec, "status")
	return spec
}

// Put creates or replaces an object without counting a write. Its kind must be served.
func (s *Server) Put(tree map[string]any) error {
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(tree)}
	t, err := s.tableOf(u.GroupVersionKind())
	if err != nil {
		return err
	}
	if u.GetUID() == "" {
		u.SetUID(uuid.NewUUID())
	}
	if u.GetGeneration() == 0 {
		u.SetGeneration(1)
	}
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	}
	_, err = s.store.put(t, u.GetNamespace()+"/"+u.GetName(), func(_ *object, version uint64) (*object, error) {
		return t.kind.newObject(u.Object, version)
	})
	return err
}

// Delete removes an object at once without counting a write.
func (s *Server) Delete(kind schema.GroupVersionKind, namespace, name string) error {
	t, err := s.tableOf(kind)
	if err != nil {
		return err
	}
	_, err = s.store.put(t, namespace+"/"+name, func(*object, uint64) (*object, error) { return nil, nil })
	return err
}

func (s *Server) tableOf(kind schema.GroupVersionKind) (*table, error) {
	for _, t := range s.store.tables {
		if t.kind.GroupVersionKind == kind {
			return t, nil
		}
	}
	return nil, fmt.Errorf("stub API server: no kind %s is served", kind)
}
