"""chat.py - small templates, one for each feature of src/text/jinja.h, and what transformers makes of them.

    python3 tests/golden/chat.py            writes tests/golden/chat.inc, which test_chat.c reads

Needs transformers and jinja2. A template that raises there has NULL for its text and must be refused here.
"""
import datetime
import os

from transformers.utils import chat_template_utils


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 7, 15, 4, 9)


chat_template_utils.datetime = Fixed

HOSTILE = " {{ 1 }} {% if %} 'a' \"b\" \\n\tä😀\n</s> "

TEMPLATES = [
    # tags and white space
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] }}\n{% endfor %}{{ eos_token }}\n",
    "a\n  {% if true %}\n    b\n  {% endif %}\n c {%- if true -%}  d  {%- endif %} \n e{{- ' f ' -}} g{{ messages[-1].content }}\n\n",
    "  {%+ if true +%}\n x{% endif %}\n{# note #}\n  {#- note -#}  y {{ 'z' }}\n{{ 'w' }}{{ messages[-1].content }}",
    "a\r\n{% if true %}\r\nb\r{% endif %}c{{ messages[-1].content }}\n\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}{% if '%}' %}ok{% endif %}{{ 'a' 'b' \"c\" }}{{ messages[-1].content }}",
    r"{{ 'a\n\t\\\'\"\x41\u00e4\101\q' }}{{ messages[-1].content }}",
    # statements
    "{% if messages|length > 1 %}two{% elif messages[0].content == 'Hi' %}hi{% else %}one{% endif %}{{ messages[-1].content }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem is defined }}{{ m.content }}{% endfor %}",
    "{% for i in range(8) if i % 2 == 0 %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}"
    "{{ i }}/{{ loop.index }} {% else %}none{% endfor %}{% for x in [] %}x{% else %}empty{% endfor %}{{ messages[-1].content }}",
    "{% for k, v in {'a': 1, 'b': [2, 3]}.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}"
    "{% set x, y = 1, 'z' %}{{ x }}{{ y }}{{ messages[-1].content }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}"
    "{% set ns = namespace(n=0, s='') %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.q is defined }}{{ messages[-1].content }}",
    "{% set x %}  a{{ 1 }} {% set y = 2 %}{% endset %}[{{ x }}]{{ y is defined }}{% set z | trim | upper %} q {% endset %}[{{ z }}]{{ messages[-1].content }}",
    "{% macro f(a, b=2, c='x') %}<{{ a }}{{ b }}{{ c }}{{ g }}>{% endmacro %}{% set g = 7 %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1) }}"
    "{% for g in [9] %}{{ f(0) | length }}{{ f(0) }}{% endfor %}{{ messages[-1].content }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ messages[-1].content }}",
    "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}in{{ 1 }}{% endcall %}{{ messages[-1].content }}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}{% generation %}{{ messages[-1].content }}{% endgeneration %}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 * 3 + 4 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 1.5 + 1 }} {{ -1 | string }} {{ messages[-1].content }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' != none }} {{ [1, 'a'] == [1, 'a'] }} {{ messages[-1].content }}",
    "{{ 'a' in 'abc' }} {{ 'x' not in ['x'] }} {{ 'role' in messages[0] }} {{ 1 in nope }} {{ not true and false or 'q' }} {{ '' or none or 0 }} {{ messages[-1].content }}",
    "{{ 1 ~ 'a' ~ none ~ true ~ nope ~ [1, 'a', \"it's\"] ~ {'k': (1,)} }} {{ 'y' if messages else 'n' }}{{ 'y' if false }} {{ messages[-1].content }}",
    "{{ 'a' + 'b' | upper }} {{ (2 + 3) ~ 4 }} {{ 1 ~ 2 * 3 }} {{ not 1 is defined }} {{ 'abc' is string and 1 is number }} {{ messages[-1].content }}",
    "{{ 'abcde'[1:3] }} {{ 'abc'[::-1] }} {{ 'abc'[-1] }} {{ [1, 2, 3][1:] }} {{ [1, 2, 3][:-1] }} {{ [1, 2, 3][9:] }} {{ 'äöü'[1] }} {{ [1][5] is defined }} {{ messages[1:] | length }}{{ messages[-1].content }}",
    # filters
    "{{ ' a ' | trim }}|{{ 'xax' | trim('x') }}|{{ 'abc' | length }}|{{ 'äöü' | length }}|{{ 'aB c-d' | title }}|{{ 'aB' | capitalize }}|{{ 'ÄB' | lower }}|{{ messages[-1].content | trim }}",
    "{{ messages[-1].content | tojson }}{{ {'a': [1, 2.5, none, true], 'b': {}, 'c': [], 'd': '</s>'} | tojson }}{{ [1, {'a': 2}] | tojson(indent=2) }}{{ 'ä😀\x7f' | tojson(ensure_ascii=true) }}"
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
    "{{ [1, 'a', none] | join(', ') }}|{{ messages | join('+', attribute='role') }}|{{ nope | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | d('q', boolean=true) }}{{ messages[-1].content }}",
    "{{ [3, 1, 2] | first }}{{ [3, 1, 2] | last }}{{ [] | first is defined }}{{ 'aXbX' | replace('X', '--') }}{{ 'aXbX' | replace('X', '', 1) }}{{ '12' | int + 1 }}{{ ' -3.7 ' | int }}{{ 'q' | int(5) }}{{ 3.9 | int }}{{ 'abc' | list }}{{ messages[-1].content }}",
    "{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'b': 1} | items %}{{ k }}{{ v }}{% endfor %}{{ ['b', 'A', 'c'] | sort }}{{ [2, 3, 1] | sort(reverse=true) | list }}{{ ['a', 'A', 'b'] | unique | list }}{{ [2, 1] | min }}{{ [1, 2] | max }}{{ [1, 2] | reverse | list }}{{ messages[-1].content }}",
    "{{ messages | map(attribute='role') | list }}{{ ['a', 'b'] | map('upper') | join }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'in', ['user']) | list | length }}"
    "{{ [1, none, 2] | reject('none') | list }}{{ [1, 0, 2] | select | list }}{{ messages | selectattr('nope') | list }}{{ none | select('string') | list }}{{ messages[-1].content }}",
    "{{ 'a\n\nb' | indent }}|{{ 'a\nb' | indent(2, first=true) }}|{{ 'a\n\nb\n' | indent('> ', blank=true) }}|{{ '' | indent(2, true) }}{{ messages[-1].content }}",
    "{{ '<b>' | safe }}{{ 'x' ~ ('<b>' | safe) }}{{ ('<b>' | safe) is string }}{{ messages[-1].content }}",
    # tests
    "{% for x in [1, 1.5, true, none, 'a', [1], (1,), {'a': 1}, nope] %}{{ x is defined }}{{ x is none }}{{ x is string }}{{ x is mapping }}{{ x is iterable }}{{ x is sequence }}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is boolean }}{{ x is true }}{{ x is false }} {% endfor %}{{ messages[-1].content }}",
    "{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 'a' is in ['a'] }}{{ 3 is gt 2 }}{{ 3 is not lt(2) }}{{ range is callable }}{{ nope is undefined }}{{ strftime_now is defined }}{{ messages[-1].content }}",
    # methods and functions
    "{{ ' a '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}|{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}|{{ messages[-1].content.split('\n')[0] }}",
    "{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ \"it's a day\".title() }}{{ 'aBc'.capitalize() }}{{ 'aa'.replace('a', 'b', 1) }}{{ '-'.join(['a', 'b']) }}{{ '{} and {}{{}}'.format(1, 'x') }}{{ messages[-1].content }}",
    "{% set d = dict(a=1, b=none) %}{{ d.a }}{{ d['b'] }}{{ d.get('c') }}{{ d.get('c', 3) }}{{ d.keys() | list }}{{ d.values() | list }}{{ d.items() | length }}{{ d.zz is defined }}{{ d | length }}{{ messages[-1].content }}",
    "{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %a %H:%M:%S %I %p %j %y %%') }}{{ messages[-1].content }}",
    "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ nope }}{{ none.x is defined }}{{ 'a'.x is defined }}{{ messages[0]['nope'] is defined }}{{ messages[-1].content }}",
    # what raises there
    "{{ raise_exception('No ' + messages[0].role) }}",
    "{{ nope.x }}",
    "{{ 'a' + 1 }}",
    "{{ messages | selectattr('role') | length }}",
    "{% for x in none %}{% endfor %}",
    "{{ f(1) }}",
    "{{ [1].append(2) }}",
    "{{ 1 // 0 }}",
    "{{ nope + 'a' }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% if true %}{{ messages[0].content }}",
    "{{ messages[0].content }}{% endif %}",
    "{{ messages[0].content | nosuchfilter }}",
    "{% break %}",
    "{{ 'a' 1 }}",
    "{{ messages[0].content",
    "{# never closed",
]

CONVERSATIONS = [("Hi", None), (HOSTILE, " Be\n\"kind\" ")]


def render(template, message, system):
    chat = [{"role": "user", "content": message}]
    if system is not None:
        chat.insert(0, {"role": "system", "content": system})
    try:
        return chat_template_utils.render_jinja_template(
            [chat], chat_template=template, add_generation_prompt=True, bos_token="<B>", eos_token="</s>")[0][0]
    except Exception:
        return None


def literal(text):
    if text is None:
        return " NULL"
    codes = []
    for byte in text.encode():
        char = chr(byte)
        codes.append({"\n": "\\n", '"': '\\"', "\\": "\\\\"}.get(char, char) if 32 <= byte < 127 or char == "\n"
                     else f"\\{byte:03o}")
    lines, line = [], ""
    for code in codes:
        line += code
        if len(line) > 80:
            lines.append(line)
            line = ""
    return "\n".join(f' "{part}"' for part in lines + [line])


def main():
    rows = []
    for template in TEMPLATES:
        for message, system in CONVERSATIONS:
            parts = [template, message, system, render(template, message, system)]
            rows.append("{" + ",\n".join(literal(part) for part in parts)[1:] + "},\n")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat.inc")
    with open(path, "w", newline="\n") as file:
        file.write("/* Templates, the message of a user, of a system, and what transformers writes. Made by\n"
                   "   chat.py, read by test_chat.c. */\n" + "".join(rows))


if __name__ == "__main__":
    main()
