// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"strings"
	"unicode"
)

// Letters and signs that most fonts draw as, or nearly as, one of ASCII. Those
// that are another way to write it (fullwidth, mathematical) are found by
// compatibility; these have meanings of their own.
const (
	cyrillicASCII = "аАВсСԁеЕԌһНіІјЈКӏӀМпоОрРԛЅѕТцѵѴѡԜхХуУҮүҺ"
	greekASCII    = "αΑΒβΕεΖΗΙιΚκΜΝνοΟρΡΤτυΥΧχγϲϳ"
	otherASCII    = "ɑɡıȷℓɩɪʋǀаօսհոցյզՕՏՍ"                          // Latin beyond ASCII, Armenian
	latinASCII    = "ᴄᴏᴑᴜᴠᴡᴢꜱƖƍᶃƄƅƽꭇꭈꬲꬽꞙẝĸʏɣᶌỿʀʟɴʙʜᴀᴅᴇꜰɢᴊᴋᴍᴘᴛſɯɾɿʌ" // letters of phonetic writing
	foreignASCII  = "гпктмньσκηωυτ"                                 // alike in some fonts, in words of nothing else
	signsASCII    = "‐‑‒–—―−⁃˗∕⁄⧸╱⟋∖⧵⧹﹨․‚٫ꓹ:܃܄։׃ː꞉∶;٭∗⁎∼˜～‖∥ǁ❘ǀ¦′ʹʼ＇ʽʻ‘’‵`´ˈ“”″‟〃＂ˮ≪≫‹›«»¡ǃ＄＆﹠＃﹟＠﹫％٪⁒＊＋᛭‹＜˂＝᐀⹀﹦＞˃？﹖ʔ＾˄ˆ＿﹍﹎﹏｛｜｝❨❩❲❳❴❵﴾﴿"
)

// looksASCII says whether r can be taken for a character of ASCII.
func looksASCII(r rune) bool {
	switch {
	case r <= 0x7f:
		return false
	case unicode.Is(unicode.Lisu, r), unicode.Is(unicode.Cherokee, r), unicode.Is(unicode.Coptic, r): // most of them
		return true
	}
	return strings.ContainsRune(cyrillicASCII, r) || strings.ContainsRune(greekASCII, r) || strings.ContainsRune(otherASCII, r) ||
		strings.ContainsRune(latinASCII, r) || strings.ContainsRune(signsASCII, r)
}

// imitates says whether a word of one alphabet can be read as a word of ASCII:
// each of its letters looks like one.
func imitates(word string) bool {
	foreign := false
	for _, r := range word {
		if r < 0x80 {
			continue
		}
		if !looksASCII(r) && !strings.ContainsRune(foreignASCII, r) {
			return false
		}
		foreign = true
	}
	return foreign
}

// mixed says whether the letters of a word are of several alphabets, beyond what
// people write so: Japanese has four, Korean and Chinese take Latin letters in.
func mixed(word string) bool {
	first, found := "", map[string]bool{}
	for _, r := range word {
		if digit := r > 0x7f && unicode.IsDigit(r); !digit && !unicode.IsLetter(r) || unicode.Is(unicode.Common, r) {
			continue // a letter that several share tells nothing
		}
		name := alphabet(r)
		if first == "" {
			first = name
		}
		found[name] = true
	}
	if len(found) < 2 {
		return false
	}
	for _, together := range []string{"Latin Han Hiragana Katakana", "Latin Han Bopomofo", "Latin Han Hangul"} {
		ok := true
		for name := range found {
			ok = ok && strings.Contains(together, name)
		}
		if ok {
			return false
		}
	}
	return true
}

// alphabet is the script of a letter. Those that are rarely mixed by accident are
// one.
func alphabet(r rune) string {
	for _, s := range []struct {
		name  string
		table *unicode.RangeTable
	}{
		{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Han", unicode.Han}, {"Hiragana", unicode.Hiragana},
		{"Katakana", unicode.Katakana}, {"Hangul", unicode.Hangul}, {"Bopomofo", unicode.Bopomofo}, {"Armenian", unicode.Armenian},
		{"Georgian", unicode.Georgian}, {"Cherokee", unicode.Cherokee}, {"Coptic", unicode.Coptic}, {"Lisu", unicode.Lisu},
	} {
		if unicode.Is(s.table, r) {
			return s.name
		}
	}
	return "another"
}
