// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// continuation is the rest of a list whose first pages a client has received.
type continuation struct {
	remaining []*object
	version   uint64
}

// list responds with a list or a page of it.
func (s *Server) list(w http.ResponseWriter, r *http.Request, t *target) error {
	query := r.URL.Query()
	selected, err := parseSelection(t.namespace, query)
	if err != nil {
		return err
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	page, err := s.resumeList(t, selected, query.Get("continue"))
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: formatVersion(page.version)}
	items := page.remaining
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		remaining := int64(len(page.remaining) - limit)
		meta.RemainingItemCount = &remaining
		meta.Continue = s.saveContinuation(&continuation{page.remaining[limit:], page.version})
	}
	as := negotiateEncoding(r, &t.table.kind)
	raw, err := as.list(&t.table.kind, &meta, items)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", as.contentType())
	_, _ = w.Write(raw) // the client may have disconnected
	return nil
}

// resumeList returns the state of a continued list, or of a new one.
func (s *Server) resumeList(t *target, selected *selection, token string) (*continuation, error) {
	if token == "" {
		list, version := s.store.listSelected(t.table, selected)
		return &continuation{list, version}, nil
	}
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	page := s.store.pages[token]
	if page == nil {
		return nil, apierrors.NewResourceExpired("the list is too old to be continued: list again")
	}
	delete(s.store.pages, token)
	return page, nil
}

func (s *Server) saveContinuation(page *continuation) string {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	token := formatVersion(page.version) + "-" + strconv.Itoa(len(page.remaining))
	s.store.pages[token] = page
	return token
}

// list encodes a list.
func (f encoding) list(kind *Kind, meta *metav1.ListMeta, items []*object) ([]byte, error) {
	if f.protobuf {
		return podList(meta, items)
	}
	version, name := kind.ToAPIVersionAndKind()
	if f.metadata {
		version, name = partialMetadataType.APIVersion, partialMetadataType.Kind
	}
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        *metav1.ListMeta  `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}{metav1.TypeMeta{APIVersion: version, Kind: name + "List"}, meta, make([]json.RawMessage, len(items))}
	for i, o := range items {
		var err error
		if list.Items[i], err = o.json(f.metadata); err != nil {
			return nil, err
		}
	}
	return json.Marshal(list)
}

// podList encodes a PodList in protobuf: field 1 is its metadata, field 2 each pod.
func podList(meta *metav1.ListMeta, items []*object) ([]byte, error) {
	head, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	raw := appendDelimited(nil, 1, head)
	for _, o := range items {
		raw = appendDelimited(raw, 2, o.pod)
	}
	return protobufEnvelope("PodList", raw)
}

// appendDelimited appends a length-delimited protobuf field.
func appendDelimited(to []byte, number byte, content []byte) []byte {
	to = append(to, number<<3|2)
	to = binary.AppendUvarint(to, uint64(len(content)))
	return append(to, content...)
}
