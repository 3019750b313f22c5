package reader

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	readability "codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	plain "github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"

	"choir.dev/choiros/internal/webpage"
)

const (
	maxLinks    = 300
	maxElements = 50_000
	maxDepth    = 400
	// fewWords: if less of the page is left than this, what was left out was no decoration.
	fewWords = 200
)

// decoded is a body as UTF-8, by the character set that the server or the document names.
func decoded(body []byte, named string) (string, error) {
	r, err := charset.NewReader(bytes.NewReader(body), named)
	if err != nil {
		return "", fmt.Errorf("its characters can't be read: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(r, 3*webpage.MaxBody)) // no character takes more than three bytes for one
	return string(b), err
}

// markdown makes Markdown of an HTML page: of its article, without what stands around it, and of the whole if
// there is none. Links have numbers, and the list of them stands at the end. offered are the transcripts of its recordings.
func markdown(body []byte, named string, at webpage.Address) (title, text string, offered []track, err error) {
	source, err := decoded(body, named)
	if err != nil {
		return "", "", nil, err
	}
	doc, err := html.Parse(strings.NewReader(source))
	if err != nil {
		return "", "", nil, fmt.Errorf("its HTML can't be read: %w", err)
	}
	if err := simple(doc); err != nil {
		return "", "", nil, err
	}
	base, err := url.Parse(at.URL)
	if err != nil {
		return "", "", nil, err
	}
	offered = tracks(doc, at)
	title = strings.TrimSpace(content(find(doc, "title")))
	node := doc
	parser := readability.NewParser()
	parser.MaxElemsToParse = maxElements
	if article, err := parser.ParseDocument(doc, base); err == nil && article.Node != nil && len(strings.TrimSpace(content(article.Node))) >= fewWords {
		node = article.Node
		if t := strings.TrimSpace(article.Title()); t != "" {
			title = t
		}
	}
	links := number(node, at)
	conv := converter.NewConverter(converter.WithPlugins(plain.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin()))
	out, err := conv.ConvertNode(node)
	if err != nil {
		return "", "", nil, fmt.Errorf("no text can be made of its HTML: %w", err)
	}
	text = strings.TrimSpace(string(out))
	if len(links) > 0 {
		text += "\n\nLinks:\n" + strings.Join(links, "\n")
	}
	return title, text, offered, nil
}

// simple refuses documents in which a parser would recurse too deep, or work too long.
func simple(n *html.Node) error {
	elements := 0
	for depth := 0; n != nil; {
		if n.Type == html.ElementNode {
			elements++
		}
		if elements > maxElements || depth > maxDepth {
			return fmt.Errorf("its HTML has more than %d elements, or more than %d within each other", maxElements, maxDepth)
		}
		if n.FirstChild != nil {
			n, depth = n.FirstChild, depth+1
			continue
		}
		for n != nil && n.NextSibling == nil {
			n, depth = n.Parent, depth-1
		}
		if n != nil {
			n = n.NextSibling
		}
	}
	return nil
}

// number gives the links of a page numbers in the place of their addresses, and leaves out what is nothing to
// read. It returns the list.
func number(n *html.Node, at webpage.Address) []string {
	var list []string
	seen := map[string]int{}
	for n := range n.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "a":
			n.Attr = []html.Attribute{{Key: "href", Val: linked(attribute(n, "href"), at, seen, &list)}}
			if n.Attr[0].Val == "" {
				n.Attr = nil
			}
		case "img":
			n.Attr = []html.Attribute{{Key: "alt", Val: attribute(n, "alt")}}
		}
	}
	return list
}

// linked is the number of the link to an address, "" if it is none that is read, or too many have one.
func linked(href string, at webpage.Address, seen map[string]int, list *[]string) string {
	if href == "" || strings.HasPrefix(href, "#") {
		return ""
	}
	to, err := at.Refer(href)
	if err != nil {
		return ""
	}
	n, ok := seen[to.URL]
	if !ok {
		if len(*list) >= maxLinks {
			return ""
		}
		n = len(*list) + 1
		seen[to.URL] = n
		*list = append(*list, fmt.Sprintf("%d: %s", n, to.URL))
	}
	return strconv.Itoa(n)
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func find(n *html.Node, element string) *html.Node {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == element {
			return d
		}
	}
	return nil
}

func content(n *html.Node) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
