// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is the period of a watch's bookmarks.
const bookmarkEvery = 10 * time.Second

// watch streams events until the client disconnects or the timeout ends.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t *target) error {
	query := r.URL.Query()
	selected, err := parseSelection(t.namespace, query)
	if err != nil {
		return err
	}
	if t.name != "" {
		query.Set("fieldSelector", "metadata.name="+t.name)
		if selected, err = parseSelection(t.namespace, query); err != nil {
			return err
		}
	}
	initial := query.Get("sendInitialEvents") == "true"
	if initial && s.WithoutWatchList {
		return apierrors.NewInvalid(t.table.kind.GroupKind(), "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "is not supported by this server"),
		})
	}
	out := &stream{w: w, kind: &t.table.kind, form: negotiateEncoding(r, &t.table.kind)}
	at, err := s.sendInitial(out, t.table, selected, query.Get("resourceVersion"), initial)
	if err != nil {
		return err
	}
	over := time.NewTimer(timeout(query.Get("timeoutSeconds")))
	defer over.Stop()
	bookmarks := time.NewTicker(bookmarkEvery)
	defer bookmarks.Stop()
	for {
		events, next, more, err := s.store.eventsSince(t.table, at, selected)
		if err != nil {
			return out.fail(err)
		}
		for _, e := range events {
			if err := out.event(e); err != nil {
				return nil // the client has disconnected
			}
		}
		at = next
		out.flush()
		select {
		case <-r.Context().Done():
			return nil
		case <-over.C:
			return nil
		case <-bookmarks.C:
			if query.Get("allowWatchBookmarks") == "true" && out.bookmark(s.version(), false) != nil {
				return nil
			}
		case <-more:
		}
	}
}

// sendInitial sends the existing objects if requested, and returns the number of the first
// event after them.
func (s *Server) sendInitial(out *stream, t *table, selected *selection, version string, initial bool) (int, error) {
	from, _ := strconv.ParseUint(version, 10, 64)
	if from > 0 && !initial {
		return s.store.firstEventAfter(t, from)
	}
	list, from := s.store.listSelected(t, selected)
	at, err := s.store.firstEventAfter(t, from)
	if err != nil {
		return 0, err
	}
	out.start()
	for _, o := range list {
		if out.event(selectedEvent{watch.Added, o, o.version}) != nil {
			break // the client has disconnected; the next write fails too
		}
	}
	if initial {
		_ = out.bookmark(from, true)
	}
	return at, nil
}

func (s *Server) version() uint64 {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return s.store.version
}

func timeout(seconds string) time.Duration {
	if n, err := strconv.Atoi(seconds); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return time.Hour
}

// stream writes the events of one watch.
type stream struct {
	w       http.ResponseWriter
	kind    *Kind
	form    encoding
	started bool
}

func (s *stream) start() {
	if !s.started {
		s.started = true
		s.w.Header().Set("Content-Type", s.form.contentType()+";stream=watch")
		s.w.WriteHeader(http.StatusOK)
	}
}

func (s *stream) flush() {
	s.start()
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

// event writes one event. A deleted object gets the version of its deletion.
func (s *stream) event(e selectedEvent) error {
	o := e.object
	if o.version != e.version {
		tree, err := o.content()
		if err == nil {
			o, err = s.kind.newObject(tree, e.version)
		}
		if err != nil {
			return err
		}
	}
	raw, err := s.form.encode(o)
	if err != nil {
		return err
	}
	return s.write(e.kind, raw)
}

// bookmark reports the version that the watch has reached, and the end of the initial
// events.
func (s *stream) bookmark(version uint64, end bool) error {
	meta := metav1.ObjectMeta{ResourceVersion: formatVersion(version)}
	if end {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	var raw []byte
	var err error
	if s.form.protobuf {
		if raw, err = (&corev1.Pod{ObjectMeta: meta}).Marshal(); err == nil {
			raw, err = protobufEnvelope("Pod", raw)
		}
	} else {
		object := metav1.PartialObjectMetadata{ObjectMeta: meta, TypeMeta: partialMetadataType}
		if !s.form.metadata {
			object.APIVersion, object.Kind = s.kind.ToAPIVersionAndKind()
		}
		raw, err = json.Marshal(object)
	}
	if err != nil {
		return err
	}
	err = s.write(watch.Bookmark, raw)
	s.flush()
	return err
}

// fail ends the watch with an error.
func (s *stream) fail(err error) error {
	if !s.started {
		return err
	}
	status := statusOf(err)
	raw, err := json.Marshal(status)
	if s.form.protobuf {
		if raw, err = status.Marshal(); err == nil {
			raw, err = protobufEnvelope("Status", raw)
		}
	}
	if err == nil {
		_ = s.write(watch.Error, raw) // the watch ends in any case
	}
	return nil
}

// write frames an event: by its length in protobuf, by a line in JSON.
func (s *stream) write(kind watch.EventType, raw []byte) error {
	s.start()
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
	if !s.form.protobuf {
		return json.NewEncoder(s.w).Encode(event)
	}
	encoded, err := event.Marshal()
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, len(encoded)+4), uint32(len(encoded))) // #nosec G115 -- an object is smaller
	_, err = s.w.Write(append(frame, encoded...))
	return err
}
