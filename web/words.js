// words.js - every sentence of the page, in English and Chinese. t("key", a, b) replaces
// {0} and {1} by a and b. Names that come with a report are English; those we know are
// translated by their key, others are shown as they are.

const WORDS = {
  en: {
    skip: "Skip to the picture", help: "Help", dark: "Dark", light: "Light", otherLang: "中文",
    heads: "Heads", filter: "Filter", part: "Part", report: "Report", colour: "Colour",
    picture: "Picture", views: "Views", scale: "Scale", mass: "Share shown",
    valueWeighted: "Value-weighted", zoom: "Zoom", zoomOut: "Zoom out", zoomIn: "Zoom in",
    save: "Save", saveAs: "Save this view as {0}; with Shift in the colours of the screen", wordsOfText: "Words of the text",
    direction: "Direction", gives: "looks at", gets: "is seen by", find: "Find word",
    clear: "Clear", word: "Word", weight: "Weight", numbers: "Measures", moreNumbers: "More measures", name: "Name",
    share: "Share", number: "Value", offsets: "Distance from key to row",
    caution: "Attention weights say where a head looks, not why the model decides. Ablate a head to see what it is for.",
    heat: "Heat map", beams: "Beams", all: "All heads", neuron: "Neurons", compare: "Compare",
    scaleAuto: "automatic", scaleFixed: "0 to 1", scaleHead: "head maximum", scaleRow: "row maximum",
    role: "Role", layer: "layer", head: "head", layerHead: "Layer {0} · Head {1}",
    noRole: "no label", barsNote: "A bar tells roles of one colour apart.",
    shape: "{0} × {1}", n_layer: "{0} layers", one_layer: "1 layer", n_head: "{0} heads", one_head: "1 head",
    n_word: "{0} words", one_word: "1 word", n_token: "{0} tokens", one_token: "1 token", rowsKeys: "{0} × {1} words",
    filterHint: "e.g. prev>0.5 & layer<3", filterCount: "{0} of {1} heads", filterBad: "{0} (at {1})",
    filterEnd: "something is missing at the end", filterName: "“{0}” is neither a measure nor a label here",
    filterChar: "“{0}” does not belong here", filterClose: "“)” is missing",
    whereLooks: "Where “{0}” looks", whoSees: "Who looks at “{0}”",
    whereLookSum: "Where {0} words look, summed", whoSeesSum: "Who looks at {0} words, summed",
    pickedOne: "1 word: {0}",
    rank: "rank {0} of {1}", rankTie: "ranks {0} to {1} of {2}: equal as far as is stored", about: "±{0}", notKept: "below {0}, not stored in this file",
    forbidden: "masked: a later word", toCell: "{0} looks at {1}", valueOf: "value norm {0}",
    product: "weight × value norm", legendZero: "colour ∝ √weight", scaledTo: "dark is {0} or more", paleHeads: "heads without a weight of {0} have a scale of their own", notStored: "pale where nothing is stored: at most this much",
    axisRows: "rows: the word that looks", axisKeys: "columns: the word it looks at", counts: "counts",
    sharesNote: "Faded rows: other heads answer for these words. The bars say how much this head counts for each.",
    countsFor: "counts {0} for the answer about “{1}”", goToAnswer: "Show the head and the cell that gave this answer",
    rollout: "Through all layers (rollout)", rolloutHelp: "what the class token draws from each patch through all layers, in place of this head's weights",
    unknownWord: "not in the model's vocabulary: nothing can be said about it", unknownWords: "Not in the model's vocabulary, so no answer about: {0}. ",
    noAnswer: "No answer: too few of these words are in the vocabulary.", looks: "looks", lookedAt: "is looked at",
    forbiddenKey: "hatched: masked", pooled: "each pixel shows the largest of several weights",
    beamsNote: "Beams are the largest weights of a word, together at least {0}.", beamsMost: "A word has {0} beams at most.", beamsKept: "Beams are the largest weights of a word, together at least {0} of what this file stores.",
    chipRemove: "Remove {0}", chipsHelp: "Shift-click heads to add them (up to 8).",
    neuronNone: "This report holds no query and key vectors for this head.",
    neuronHead: "q · k of “{0}” with every word", cumulative: "cumulative", times: "q × k", keyVector: "k",
    queryVector: "q", score: "score", dims: "dimension {0}: q {1}, k {2}, q×k {3}, so far {4}",
    pairDims: "pair {0}: angle of q {1}°, of k {2}°, norms {3} and {4}",
    compareA: "A", compareB: "B", difference: "B − A", compareHint: "Shift-click a head, or press c, to choose B.",
    compareShape: "A and B have texts of different length: no difference can be drawn.",
    left: "A long text: this file stores the {1} largest weights of each row, {0}% of this head's mass. ",
    leftHeads: "{0} of {1} heads are stored as thumbnails only. ",
    quantised: "Weights are stored with the digits that are printed, rounded to the nearest. ", lessThan: "less than {0}",
    leftVectors: "Vectors of {0} of {1} heads are included. ",
    rowSum: "Rows of this head do not sum to one: one is {0}. ",
    noWords: "This text has no words.", noMap: "This head's weights are not in the file; only its thumbnail is.",
    absent: "This head was pruned.",
    gridLabel: "Grid of heads, {0}. Arrow keys move, Enter opens, shift plus Enter adds or compares.",
    viewLabel: "{0}. Arrow keys move the cursor, square brackets change the head, page keys the layer, plus and minus zoom.",
    rampLabel: "Colour scale", offsetsLabel: "Share of the mass by distance: {0}",
    readTitle: "How to read a map", read_rows: "Rows look at columns: the cell in row “{0}” and column “{1}” is the share of its attention that “{0}” pays to “{1}”. Each row sums to one.",
    read_colour: "The darker, the more. Small weights stay visible because colours follow the square root; the scale below the map says what they stand for.",
    read_beams: "Beams are the same weights: from the word that looks, above or at the left, to the word that is looked at; the thicker, the more.",
    read_heads: "Letters in the grid of heads are roles, measured against a threshold; a dot is a head without one. Click a head to see it.",
    read_answers: "Answers of the model can be clicked: they lead to the head and the cell that gave them.",
    keysTitle: "Keys", defsTitle: "Measures", rolesTitle: "Labels", close: "Close", threshold: "threshold of its label: {0}",
    group: "heads share keys in groups of {0}",
    k_arrows: "move the cursor", k_page: "layer before, after", k_brackets: "head before, after", k_zoom: "zoom",
    k_find: "find a word", k_filter: "filter heads", k_compare: "compare with the head before", k_export: "save as SVG",
    k_value: "value-weighted on, off", k_views: "views", k_space: "pick the word under the cursor", k_escape: "clear picked words", k_help: "this help",
    filterHelp: "Filter: measures below compared with < <= > >= = !=, joined by & | ! ( ). layer and head count from 1. A label alone, such as {0}, selects heads that have it.",
    contribution: "share of its layer", contributionHelp: "how much of what the layer's attention writes lies along what this head adds; a layer sums to 1",
    effect: "effect, nats", effectHelp: "how far the answers about this text move when the head is switched off",
    differ: "heads differ, nats", circuitTitle: "By its weights alone", circuitLooks: "would look", circuitWrites: "would write",
    circuitHelp: "QK and OV circuits: embeddings through the weights of this head, without positions and what earlier layers add",
    liveTitle: "Live", run: "Run", textBox: "Text", ablate: "This head", zero: "zero", mean: "mean", restore: "on",
    gate: "Gate", mask: "Mask “{0}”", unmask: "Unmask “{0}”", frozen: "keep all patterns frozen", undo: "Undo", redo: "Redo", savePlan: "Save pruning plan", before: "before", after: "after",
    hintHead: "{0} matters most for this text: without it the answers move by {1} nats. Press “{2}” and read them: before and after.",
    hintAny: "Choose a head, press “{0}” and watch what changes. Or type another text.", goThere: "Go there",
    hintHeadFile: "{0} matters most here: without it the answers move by {1} nats. Press “{2}”: the answers are listed before and after.",
    hintFile: "Choose a head, press “{0}” and watch what changes. Or choose another file.",
    targetBox: "Text of the decoder", tipTarget: "What the decoder reads; empty: what the model generates. Enter runs it.", generated: "decoder: what the model generates",
    byWords: "join tokens to words", tipWords: "One row and column for each word: columns of its tokens are added, rows averaged, heads measured by words",
    otherPicture: "Other picture …", otherSound: "Other features …", tipFile: "Run the model on another file; it may also be dropped on the page", tooLarge: "{0} has more than {1} MiB",
    thisPicture: "this picture", thisSound: "this sound",
    tipText: "Another text for the model. Enter runs it.", tipRun: "Run the model on this text", tipOn: "The head works as trained",
    tipZero: "Switch the head off: its output becomes zero", tipMean: "Replace the head's output by its mean over all words: it says the same about each",
    tipGate: "Weaken the head: its output is multiplied by this", tipFrozen: "Later heads keep the weights they had without the edits, so that only the direct effect is seen",
    tipMask: "Replace this word by an unknown one", tipUndo: "Take back the last edit (Ctrl-Z)", tipRedo: "Make it again (Ctrl-Shift-Z)", tipSave: "Save the edited heads as a plan for polyhead look --plan",
    k_undo: "undo, redo an edit (live)",
    edits: "Edits", noEdits: "Nothing is changed.", busy: "computing …", ready: "answered in {0} ms", failed: "Refused: {0}", lost: "The program does not answer.",
    worth: "importance", worthHelp: "what the head is worth, as last measured: the larger, the more is lost without it", surgery: "Prune heads",
    surgeryHelp: "Measure what every head is worth, switch the least important off and see what it changes. Heads that are off give exactly what the model gives when they are removed for good.",
    method: "Measured by", measureOn: "on", measure: "Measure", cancel: "Cancel", progress: "Progress", cancelled: "cancelled", tipMeasure: "Measure every head that is on, with those that are off left out",
    thisText: "this text", dataTexts: "{0} texts of the data", measured: "{0} of {1} passes", measureFirst: "measure first", pruneLeast: "Prune the least important", prunedOf: "{0} of {1} heads",
    tipPrune: "Switch so many of the least important heads off; undo takes it back", compareData: "Compare on the data", tipCompareData: "Loss or answers on all texts of the data, without and with the edits",
    compareWeights: "Weights side by side", compared: "Compared", headsOn: "heads that are on", lossText: "loss of this text", lossName: "loss", klText: "answers moved, nats", klName: "answers moved, nats",
    cosine: "cosine to the vector before", cosineNote: "cosine {0}", vector: "Vector of the text", accuracy: "accuracy", answerRow: "answer",
    worthNote: "{0}, {1}: most {2}, least {3}", ranksNote: "Numbers: rank, 1 is worth most", saveFirst: "“{0}” writes these heads to a file, with which they can be removed for good.", removeBy: "To remove them for good:",
    m_token: "gradient, by token", m_sample: "gradient, by text", m_path: "gradient, heads fading", m_zero: "loss without it", m_mean: "loss with its mean", m_alone: "loss with it alone", m_confidence: "confidence", m_lrp_ratio: "relevance, ratio rule", m_lrp_ab: "relevance, alpha-beta rule", m_answers: "answers without it",
    mh_token: "sum over tokens of |output · its gradient|: one pass for all heads", mh_sample: "|sum over tokens of output · its gradient|: one pass for all heads", mh_zero: "how much the loss grows when the head gives 0: a pass for each head",
    mh_path: "growth of the loss due to the head while all heads fade out: a few passes for all heads",
    mh_lrp_ratio: "layer-wise relevance: the head's part of its layer's, by the ratio rule, for all heads at once", mh_lrp_ab: "the same by the alpha-beta rule, never below 0",
    mh_mean: "how much the loss grows when the head gives its mean: a pass for each head", mh_alone: "minus how much the loss grows when the others of its layer give 0", mh_confidence: "mean of the largest weight of each row", mh_answers: "how far the answers move when the head is off, in nats or as 1 − cosine: a pass for each head",
    divergence: "KL divergence {0} nats", loss: "loss {0}",
    changed: "Changed most", planSaved: "Saved as {0}", editZero: "{0} zero", editMean: "{0} mean", editGate: "{0} × {1}", editMask: "mask “{0}”", editPruned: "{0} least important zero", removeEdit: "Undo: {0}",
  },
  zh: {
    skip: "跳到图", help: "帮助", dark: "深色", light: "浅色", otherLang: "English",
    heads: "注意力头", filter: "筛选", part: "部分", report: "报告", colour: "着色",
    picture: "图", views: "视图", scale: "色标", mass: "显示的份额",
    valueWeighted: "按值向量加权", zoom: "缩放", zoomOut: "缩小", zoomIn: "放大",
    save: "保存", saveAs: "把此视图存为 {0}；按住 Shift 则用屏幕颜色", wordsOfText: "文本中的词",
    direction: "方向", gives: "看向", gets: "被看", find: "查找词",
    clear: "清除", word: "词", weight: "权重", numbers: "数值", moreNumbers: "更多数值", name: "名称",
    share: "占比", number: "数值", offsets: "键与行的距离",
    caution: "注意力权重说明一个头看向哪里，并不说明模型为何如此判断。关掉一个头，才能看出它的作用。",
    heat: "热图", beams: "连线", all: "所有头", neuron: "神经元", compare: "比较",
    scaleAuto: "自动", scaleFixed: "0 到 1", scaleHead: "该头最大值", scaleRow: "每行最大值",
    role: "角色", layer: "层", head: "头", layerHead: "第 {0} 层 · 第 {1} 头",
    noRole: "无标签", barsNote: "横线区分同色的角色。",
    shape: "{0} × {1}", n_layer: "{0} 层", one_layer: "1 层", n_head: "{0} 头", one_head: "1 头",
    n_word: "{0} 个词", one_word: "1 个词", n_token: "{0} 个词元", one_token: "1 个词元", rowsKeys: "{0} × {1} 个词",
    filterHint: "例如 prev>0.5 & layer<3", filterCount: "{1} 个头中的 {0} 个", filterBad: "{0}（第 {1} 个字符）",
    filterEnd: "结尾缺少内容", filterName: "这里没有名为“{0}”的数值或标签",
    filterChar: "“{0}”不应出现在这里", filterClose: "缺少“)”",
    whereLooks: "“{0}”看向哪里", whoSees: "谁看向“{0}”",
    whereLookSum: "{0} 个词看向哪里（求和）", whoSeesSum: "谁看向这 {0} 个词（求和）",
    pickedOne: "1 个词：{0}",
    rank: "第 {0} / {1} 名", rankTie: "第 {0} 到 {1} 名，共 {2}：就所存位数而言相等", about: "±{0}", notKept: "小于 {0}，此文件未保存",
    forbidden: "被遮住：后面的词", toCell: "{0} 看向 {1}", valueOf: "值向量范数 {0}",
    product: "权重 × 值向量范数", legendZero: "颜色 ∝ √权重", scaledTo: "最深为 {0} 或以上", paleHeads: "没有达到 {0} 的权重的头用自己的色标", notStored: "浅色处未保存：至多如此",
    axisRows: "行：看的词", axisKeys: "列：被看的词", counts: "计入",
    sharesNote: "变淡的行：这些词由其他头回答。右边的条表示该头对每个词计入多少。",
    countsFor: "对“{1}”的回答计入 {0}", goToAnswer: "显示给出此回答的头和格子",
    rollout: "经过所有层（rollout）", rolloutHelp: "类别标记经过所有层从每个图块取得的份额，代替这个头的权重",
    unknownWord: "不在模型词表中：对它无法作出判断", unknownWords: "不在模型词表中，因此不作回答：{0}。",
    noAnswer: "没有回答：词表中的词太少。", looks: "看", lookedAt: "被看",
    forbiddenKey: "斜线：被遮住", pooled: "每个像素显示若干权重中的最大者",
    beamsNote: "连线是每个词最大的权重，合计至少 {0}。", beamsMost: "每个词最多 {0} 条连线。", beamsKept: "连线是每个词最大的权重，合计至少占此文件所存的 {0}。",
    chipRemove: "移除 {0}", chipsHelp: "按住 Shift 点击可添加头（最多 8 个）。",
    neuronNone: "此报告没有这个头的查询和键向量。",
    neuronHead: "“{0}”与每个词的 q · k", cumulative: "累计", times: "q × k", keyVector: "k",
    queryVector: "q", score: "分数", dims: "第 {0} 维：q {1}，k {2}，q×k {3}，累计 {4}",
    pairDims: "第 {0} 对：q 角度 {1}°，k 角度 {2}°，范数 {3} 和 {4}",
    compareA: "A", compareB: "B", difference: "B − A", compareHint: "按住 Shift 点击一个头，或按 c，选择 B。",
    compareShape: "A 与 B 的文本长度不同，无法画出差值。",
    left: "长文本：此文件保留每行最大的 {1} 个权重，占该头质量的 {0}%。",
    leftHeads: "{1} 个头中有 {0} 个只保留缩略图。",
    quantised: "权重按显示的位数保存（四舍五入）。", lessThan: "小于 {0}",
    leftVectors: "包含 {1} 个头中 {0} 个头的向量。",
    rowSum: "该头的行和不为一：有一行为 {0}。",
    noWords: "此文本没有词。", noMap: "文件中没有这个头的权重，只有缩略图。",
    absent: "这个头已被剪除。",
    gridLabel: "注意力头的网格，{0}。方向键移动，回车打开，Shift 加回车添加或比较。",
    viewLabel: "{0}。方向键移动光标，方括号换头，翻页键换层，加减号缩放。",
    rampLabel: "色标", offsetsLabel: "按距离的质量占比：{0}",
    readTitle: "怎样看图", read_rows: "行看向列：“{0}”行“{1}”列的格子，是“{0}”分给“{1}”的注意力。每行之和为一。",
    read_colour: "颜色越深越多。颜色按平方根变化，小权重也能看见；图下的色标说明数值。",
    read_beams: "连线是同样的权重：从看的词（上面或左边）到被看的词，越粗越多。",
    read_heads: "网格中的字母是角色，按阈值测得；点表示没有角色。点击一个头即可查看。",
    read_answers: "模型的回答可以点击：会转到给出回答的头和格子。",
    keysTitle: "按键", defsTitle: "数值", rolesTitle: "标签", close: "关闭", threshold: "标签阈值：{0}",
    group: "每 {0} 个头共用键",
    k_arrows: "移动光标", k_page: "上一层、下一层", k_brackets: "左边、右边的头", k_zoom: "缩放",
    k_find: "查找词", k_filter: "筛选头", k_compare: "与前一个头比较", k_export: "存为 SVG",
    k_value: "开关值向量加权", k_views: "视图", k_space: "选中光标处的词", k_escape: "清除选中的词", k_help: "本帮助",
    filterHelp: "筛选：下列数值可用 < <= > >= = != 比较，用 & | ! ( ) 连接。layer 和 head 从 1 数起。单独写标签（如 {0}）表示有该标签的头。",
    contribution: "在本层中的份额", contributionHelp: "本层注意力写出的内容有多少沿着该头所加的方向；一层之和为 1",
    effect: "影响（奈特）", effectHelp: "关掉该头时，对此文本的回答变化多少",
    differ: "各头差异（奈特）", circuitTitle: "仅由权重看", circuitLooks: "会看向", circuitWrites: "会写出",
    circuitHelp: "QK 与 OV 电路：词向量经过该头的权重，不计位置和前面各层所加的内容",
    liveTitle: "实时", run: "运行", textBox: "文本", ablate: "这个头", zero: "置零", mean: "均值", restore: "恢复",
    gate: "门", mask: "遮住“{0}”", unmask: "恢复“{0}”", frozen: "冻结所有注意力", undo: "撤销", redo: "重做", savePlan: "保存剪枝方案", before: "之前", after: "之后",
    hintHead: "{0}对此文本最重要：没有它，回答变化 {1} 奈特。按“{2}”，回答会列出之前和之后。",
    hintAny: "选一个头，按“{0}”，看有何变化；或输入另一段文本。", goThere: "转到",
    hintHeadFile: "{0}在此最重要：没有它，回答变化 {1} 奈特。按“{2}”，回答会列出之前和之后。",
    hintFile: "选一个头，按“{0}”，看有何变化；或选择另一个文件。",
    targetBox: "解码器的文本", tipTarget: "解码器所读的文本；留空则为模型生成的文本。回车运行。", generated: "解码器：模型生成的文本",
    byWords: "把词元合并成词", tipWords: "每个词一行一列：其词元的列相加，行取平均，头按词测量",
    otherPicture: "另一张图片 …", otherSound: "另一组特征 …", tipFile: "让模型读另一个文件；也可以拖到页面上", tooLarge: "{0} 超过 {1} MiB",
    thisPicture: "此图片", thisSound: "此声音",
    tipText: "让模型读另一段文本，回车运行。", tipRun: "在此文本上运行模型", tipOn: "该头按训练所得工作",
    tipZero: "关掉该头：输出变为零", tipMean: "把该头的输出换成对所有词的均值：对每个词都说同样的话",
    tipGate: "减弱该头：输出乘以此数", tipFrozen: "后面的头保持改动前的权重，只看直接影响",
    tipMask: "把这个词换成未知词", tipUndo: "取消上一次改动（Ctrl-Z）", tipRedo: "重新改动（Ctrl-Shift-Z）", tipSave: "把改动过的头存为方案，供 polyhead look --plan 使用",
    k_undo: "撤销、重做改动（实时）",
    edits: "改动", noEdits: "没有改动。", busy: "计算中 …", ready: "{0} 毫秒完成", failed: "被拒绝：{0}", lost: "程序没有回应。",
    worth: "重要性", worthHelp: "最近一次测得的该头的价值：越大，去掉它损失越多", surgery: "剪枝",
    surgeryHelp: "测量每个头的价值，关掉最不重要的头，看有何变化。关掉的头与真正移除后模型给出的结果完全相同。",
    method: "测量方法", measureOn: "用", measure: "测量", cancel: "取消", progress: "进度", cancelled: "已取消", tipMeasure: "测量所有开着的头，已关掉的不计",
    thisText: "此文本", dataTexts: "数据中的 {0} 段文本", measured: "第 {0} / {1} 遍", measureFirst: "请先测量", pruneLeast: "剪掉最不重要的", prunedOf: "{1} 个头中的 {0} 个",
    tipPrune: "关掉这么多最不重要的头；可以撤销", compareData: "在数据上比较", tipCompareData: "在数据的所有文本上比较改动前后的损失或回答",
    compareWeights: "并排看权重", compared: "比较", headsOn: "开着的头", lossText: "此文本的损失", lossName: "损失", klText: "回答变化（奈特）", klName: "回答变化（奈特）",
    cosine: "与之前向量的余弦", cosineNote: "余弦 {0}", vector: "文本的向量", accuracy: "准确率", answerRow: "回答",
    worthNote: "{0}，{1}：最重要 {2}，最不重要 {3}", ranksNote: "数字为名次，1 最重要", saveFirst: "“{0}”把这些头写入文件，可据此永久移除。", removeBy: "永久移除：",
    m_token: "梯度（逐词）", m_sample: "梯度（整段）", m_path: "梯度（各头渐隐）", m_zero: "去掉后的损失", m_mean: "换成均值后的损失", m_alone: "只留它时的损失", m_confidence: "置信度", m_lrp_ratio: "相关性，比例规则", m_lrp_ab: "相关性，α-β 规则", m_answers: "去掉后的回答",
    mh_token: "对各词 |输出 · 其梯度| 求和：所有头只需一遍", mh_sample: "|对各词 输出 · 其梯度 求和|：所有头只需一遍", mh_zero: "该头输出为 0 时损失增加多少：每个头一遍",
    mh_path: "所有头逐渐减弱时由该头引起的损失增长：所有头只需几遍",
    mh_lrp_ratio: "逐层相关性：该头在同层中所占的份额（比例规则），所有头一次算出", mh_lrp_ab: "同上，按 α-β 规则，不小于 0",
    mh_mean: "该头输出换成均值时损失增加多少：每个头一遍", mh_alone: "同层其他头输出为 0 时损失增加多少，取负", mh_confidence: "各行最大权重的平均", mh_answers: "关掉该头时回答变化多少（奈特或 1 − 余弦）：每个头一遍",
    divergence: "KL 散度 {0} 奈特", loss: "损失 {0}",
    changed: "变化最大", planSaved: "已保存为 {0}", editZero: "{0} 置零", editMean: "{0} 均值", editGate: "{0} × {1}", editMask: "遮住“{0}”", editPruned: "{0} 个最不重要的置零", removeEdit: "取消：{0}",
  },
};

// Names of measures and labels that reports use, by key.
const NAMES_ZH = {
  answer: "回答",
  prev: "前一个词", next: "后一个词", self: "自身", first: "首词",
  sep: "分隔符", punct: "标点", entropy: "熵（nats）", breadth: "宽度", confidence: "置信度", distance: "平均距离",
  broad: "宽泛", positional: "固定距离", rare: "罕见词", rarest: "最罕见词", duplicate: "重复词", induction: "归纳",
  link: "词间关系", none: "无标签", bare_prev: "前一个词（不计首词）", bare_next: "后一个词（不计首词）",
  bare_self: "自身（不计首词）", bare_sep: "分隔符（不计首词）", bare_punct: "标点（不计首词）", bare_duplicate: "重复词（不计首词）", bare_induction: "归纳（不计首词）", sep_sep: "分隔符到分隔符",
  rest_sep: "其余到分隔符", duplicate_chance: "重复词（随机水平）", induction_chance: "归纳（随机水平）",
  prefix_entry: "归纳（按条目）", rare_chance: "罕见词（随机水平）",
};

// Definitions of measures and labels.
const HELP_ZH = {
  prev: "落在前一个词上的权重占比", next: "落在后一个词上的权重占比", self: "落在自身上的权重占比", first: "落在首词上的权重占比",
  sep: "落在分隔符上的权重占比", punct: "落在句号和逗号上的权重占比",
  bare_prev: "去掉首词、各行重新归一后的 prev", bare_next: "去掉首词、各行重新归一后的 next", bare_self: "去掉首词、各行重新归一后的 self",
  bare_sep: "去掉首词、各行重新归一后的 sep", bare_punct: "去掉首词、各行重新归一后的 punct",
  bare_duplicate: "去掉首词、各行重新归一后的 duplicate", bare_induction: "去掉首词、各行重新归一后的 induction",
  sep_sep: "分隔符所在各行落在分隔符上的权重占比", rest_sep: "其余各行落在分隔符上的权重占比", entropy: "各行 -Σ A ln A 的平均",
  breadth: "一行的熵除以可能的最大值；1 为均匀", confidence: "各行最大权重的平均，不计分隔符", distance: "行与所看之处的平均距离（词）",
  positional: "最大权重落在最常见距离上的行的占比", duplicate: "落在同一词先前出现处的权重，只计有先例的行", duplicate_chance: "均匀权重会落在先前出现处的量",
  induction: "落在同一词先前出现处之后一词的权重，只计有先例的行", induction_chance: "均匀权重会落在该处的量", prefix_entry: "归纳的权重按条目而非按行平均",
  link: "某种关系的准确率超出其最佳固定距离的最大幅度",
};
const LABELS_ZH = {
  none: "没有满足的规则", answer: "其权重就是回答", link: "找出某种关系的对象，比最佳固定距离至少高 10 个百分点（link >= 0.10）",
  induction: "至少一半权重落在同一词先前出现处之后，且为随机水平的 3 倍（induction 或 bare_induction >= 0.50）",
  duplicate: "至少一半权重落在同一词先前出现处，且为随机水平的 3 倍（duplicate 或 bare_duplicate >= 0.50）",
  rare: "至少一半的行最看重两个最罕见的词之一，且为随机水平的 3 倍（rare >= 0.50）",
  prev: "超过一半权重落在前一个词上（prev 或 bare_prev > 0.50）", next: "超过一半权重落在后一个词上（next 或 bare_next > 0.50）",
  self: "超过一半权重落在自身上（self 或 bare_self > 0.50）", positional: "至少 90% 的行最看重同一距离（positional >= 0.90）", sep: "超过 0.6 的权重落在分隔符上（sep 或 bare_sep > 0.60）",
  punct: "超过 0.6 的权重落在句号和逗号上（punct 或 bare_punct > 0.60）", first: "超过 0.6 的权重落在首词上（first > 0.60）",
  broad: "分散在所见的大部分词上（breadth > 均匀行的 0.78）",
};
const RELATIONS_ZH = {
  determiner: "限定词", property: "修饰", actor: "施事", object: "宾语", reference: "指代", helper: "辅助词", state: "状态", place: "地点",
  reason: "原因", clause: "从句", unsure: "不确定",
};

// Other words that reports use.
const TEXTS_ZH = {
  encoder: "编码器", decoder: "解码器", cross: "交叉", links: "关系", "embedded model": "内置模型",
  "what each word belongs to": "每个词属于哪个词", "next token": "下一个词元",
};
const SENTENCES_ZH = [
  [/^(\d+) heads?: /, "{1} 个头："], [/^(\d+) heads?; /, "{1} 个头；"], [/(\d+) without a label/, "{1} 个无标签"],
  [/(\d+) % of the weight rests on the first token/, "首词占全部权重的 {1}%"],
  [/measured on (\d+) sentences that the model has not seen/, "在模型未见过的 {1} 个句子上测得"],
];

let lang = "en";

function t(key, ...args) {
  const text = WORDS[lang][key] ?? WORDS.en[key] ?? key;
  return text.replace(/\{(\d)\}/g, (_, n) => args[n]);
}

const counted = (n, what) => t(n === 1 ? `one_${what}` : `n_${what}`, n);

// A short text of a report, or its sentence of findings, where it is known.
function said(text) {
  if (lang !== "zh" || !text) return text ?? "";
  if (TEXTS_ZH[text]) return TEXTS_ZH[text];
  for (const role of page.reports[0].roles) if (role.name) text = text.replace(new RegExp(`(\\d) ${role.name.replace(/\W/g, "\\$&")}`), `$1 ${nameOf(role)}`);
  for (const [pattern, zh] of SENTENCES_ZH) text = text.replace(pattern, (_, n) => zh.replace("{1}", n));
  return text.replaceAll("; ", "；").replaceAll(", ", "，");
}

const helpOf = (metric) => (metric.own ? t(`${metric.key}Help`) : (lang === "zh" && HELP_ZH[metric.key]) || metric.help);
const ruleOf = (role) => (lang === "zh" && (LABELS_ZH[role.key] ?? (RELATIONS_ZH[role.key] && LABELS_ZH.link))) || role.help;

// Why a head has its label, as "link verb 0.51 >= 0.10".
function reasonOf(why) {
  if (lang !== "zh" || !why) return why ?? "";
  return why.split(" ").map((word) => NAMES_ZH[word] ?? RELATIONS_ZH[word] ?? word).join(" ");
}

function nameOf(thing) {
  if (thing.own) return t(thing.key);
  if (lang !== "zh") return thing.name || thing.key;
  return NAMES_ZH[thing.key] ?? (RELATIONS_ZH[thing.key] ? `${RELATIONS_ZH[thing.key]}关系` : thing.name || thing.key);
}

// A word as it may be shown: controls, direction marks and lone blanks become visible.
const HARMFUL = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e0fff}]/gu;

const LONGEST_WORD = 200; // characters of a word that are shown

function shown(word) {
  if (word === "") return "∅";
  if (word.length > LONGEST_WORD) word = `${Array.from(word.slice(0, LONGEST_WORD)).slice(0, -1).join("")}…`;
  if (/^ +$/.test(word)) return "␣".repeat(word.length);
  return word.replace(/^\p{M}/u, "◌$&").replace(HARMFUL, (c) => { // a combining mark without a base character
    const code = c.codePointAt(0);
    if (code === 10) return "⏎";
    if (code === 9) return "⇥";
    return `‹${code.toString(16).toUpperCase()}›`;
  });
}
