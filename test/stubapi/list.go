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

// paging is the rest of a list, of which a client had the first pages.
type paging struct {
	rest    []*object
	version uint64
}

// list answers with a list, or a page of it.
func (s *Server) list(w http.ResponseWriter, r *http.Request, t *target) error {
	query := r.URL.Query()
	wanted, err := selected(t.namespace, query)
	if err != nil {
		return err
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	page, err := s.page(t, wanted, query.Get("continue"))
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: decimal(page.version)}
	items := page.rest
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		remaining := int64(len(page.rest) - limit)
		meta.RemainingItemCount = &remaining
		meta.Continue = s.keepPage(&paging{page.rest[limit:], page.version})
	}
	as := formOf(r, &t.table.kind)
	raw, err := as.list(&t.table.kind, &meta, items)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", as.contentType())
	_, _ = w.Write(raw) // a client that has gone needs no answer
	return nil
}

// page is where a continued list stands, or a new one.
func (s *Server) page(t *target, wanted *selection, token string) (*paging, error) {
	if token == "" {
		list, version := s.store.all(t.table, wanted)
		return &paging{list, version}, nil
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

func (s *Server) keepPage(page *paging) string {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	token := decimal(page.version) + "-" + strconv.Itoa(len(page.rest))
	s.store.pages[token] = page
	return token
}

// list writes a list.
func (f form) list(kind *Kind, meta *metav1.ListMeta, items []*object) ([]byte, error) {
	if f.protobuf {
		return podList(meta, items)
	}
	version, name := kind.ToAPIVersionAndKind()
	if f.metadata {
		version, name = partial.APIVersion, partial.Kind
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

// podList is a PodList in protobuf: field 1 its metadata, field 2 each pod.
func podList(meta *metav1.ListMeta, items []*object) ([]byte, error) {
	head, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	raw := delimited(nil, 1, head)
	for _, o := range items {
		raw = delimited(raw, 2, o.pod)
	}
	return envelope("PodList", raw)
}

// delimited appends a length-delimited field of protobuf.
func delimited(to []byte, number byte, content []byte) []byte {
	to = append(to, number<<3|2)
	to = binary.AppendUvarint(to, uint64(len(content)))
	return append(to, content...)
}
