package reader

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/ledongthuc/pdf"

	"choir.dev/choiros/internal/webpage"
)

const maxPages = 300

var errPDF = errors.New("it is a PDF that can't be read; it may be damaged, or locked by a password")

// pdfText returns the text of a PDF, page by page. more says that there is more than is read.
func pdfText(body []byte) (title, text string, more bool, err error) {
	defer func() {
		if recover() != nil { // the library panics at what it does not understand
			title, text, more, err = "", "", false, errPDF
		}
	}()
	r, err := pdf.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return "", "", false, errPDF
	}
	title = r.Trailer().Key("Info").Key("Title").Text()
	pages := r.NumPage()
	var b strings.Builder
	for n := 1; n <= min(pages, maxPages) && b.Len() < webpage.MaxText; n++ {
		said, ok := pageText(r, n)
		if !ok {
			said = "(this page can't be read)"
		}
		fmt.Fprintf(&b, "## Page %d of %d\n\n%s\n\n", n, pages, strings.TrimSpace(said))
		more = n < pages
	}
	if strings.TrimSpace(b.String()) == "" {
		return "", "", false, errPDF
	}
	return title, b.String(), more, nil
}

func pageText(r *pdf.Reader, n int) (text string, ok bool) {
	defer func() {
		if recover() != nil {
			text, ok = "", false
		}
	}()
	p := r.Page(n)
	if p.V.IsNull() {
		return "", false
	}
	rows, err := p.GetTextByRow()
	if err != nil {
		return "", false
	}
	var b strings.Builder
	for _, row := range rows {
		for _, word := range row.Content {
			b.WriteString(word.S)
		}
		b.WriteString("\n")
	}
	return b.String(), true
}
