// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
			return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", t.table.kind.groupResource(),
				t.name, "the stub supports merge and apply patches, not "+media, 0, false)
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
		return apierrors.NewGenericServerResponse(http.StatusNotFound, c.verb, c.target.table.kind.groupResource(),
			c.target.name, "the stub has no "+c.target.subresource, 0, false)
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
		writeJSON(w, http.StatusOK, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusSuccess,
		})
		return nil
	}
	code := http.StatusOK
	if c.before == nil {
		code = http.StatusCreated
	}
	return writeObject(w, code, o, negotiateEncoding(r, &c.target.table.kind))
}

// name returns the name of the created object.
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

// apply returns the new object. The store calls it under its lock.
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
	case c.dryRun && before == nil: // respond with the object that would be created
		return nil, nil
	case c.dryRun, before != nil && reflect.DeepEqual(after, c.before):
		return before, nil
	case after == nil:
		return nil, nil
	}
	return kind.newObject(after, version)
}

// nextState returns the object after the change; nil for a deleted one.
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
	u, previous := unstructured.Unstructured{Object: after}, unstructured.Unstructured{Object: c.before}
	if c.before == nil {
		c.setCreationFields(&u)
		return after, nil
	}
	if requested, ok, _ := unstructured.NestedString(c.body, "metadata", "resourceVersion"); ok && requested != "" &&
		requested != previous.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.target.table.kind.groupResource(), c.target.name,
			fmt.Errorf("the object has been modified: it is at version %s", previous.GetResourceVersion()))
	}
	after = c.restrictToSubresource(after)
	u.Object = after
	for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "name", "namespace"} {
		restoreField(after, c.before, "metadata", key)
	}
	after["apiVersion"], after["kind"] = c.before["apiVersion"], c.before["kind"]
	if !reflect.DeepEqual(specOf(after), specOf(c.before)) {
		u.SetGeneration(previous.GetGeneration() + 1)
	}
	if previous.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		return nil, nil
	}
	return after, nil
}

// restrictToSubresource limits a write to its part of the object: the status, or the rest.
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

// setCreationFields sets the fields that a server sets.
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

// markDeleted returns nil, or the object that waits for its finalizers.
func (c *writeRequest) markDeleted() (map[string]any, error) {
	previous := unstructured.Unstructured{Object: c.before}
	for _, condition := range []struct{ key, value string }{
		{"uid", string(previous.GetUID())},
		{"resourceVersion", previous.GetResourceVersion()},
	} {
		if requested, ok, _ := unstructured.NestedString(c.body, "preconditions", condition.key); ok && requested != condition.value {
			return nil, apierrors.NewConflict(c.target.table.kind.groupResource(), c.target.name,
				fmt.Errorf("precondition failed: %s is %s", condition.key, condition.value))
		}
	}
	if len(previous.GetFinalizers()) == 0 {
		return nil, nil
	}
	after := unstructured.Unstructured{Object: runtime.DeepCopyJSON(c.before)}
	if after.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		after.SetDeletionTimestamp(&now)
	}
	return after.Object, nil
}

// applyMergePatch applies a merge patch to an object (RFC 7386).
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

// restoreField sets a field to its earlier value.
func restoreField(after, before map[string]any, path ...string) {
	if value, ok, _ := unstructured.NestedFieldCopy(before, path...); ok {
		_ = unstructured.SetNestedField(after, value, path...) // metadata is an object in all stored objects
		return
	}
	unstructured.RemoveNestedField(after, path...)
}

// specOf returns an object without its metadata and status.
func specOf(tree map[string]any) map[string]any {
	spec := maps.Clone(tree)
	delete(spec, "metadata")
	delete(spec, "status")
	return spec
}
